// Reminders by mail, later: "publish 3000 1000" (ms), and "consume".
package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	exchange = cmp.Or(os.Getenv("EXCHANGE"), "reminders")
	queue    = exchange + ".mail"
)

func main() {
	connection, err := amqp.Dial(cmp.Or(os.Getenv("AMQP_URL"), "amqp://guest:guest@localhost:5672/"))
	must(err)
	defer connection.Close()
	channel, err := connection.Channel()
	must(err)
	must(channel.ExchangeDeclarePassive(exchange, "headers", true, false, false, false, nil))
	if os.Args[1] == "publish" {
		publish(channel, os.Args[2:])
	} else {
		consume(channel)
	}
}

func publish(channel *amqp.Channel, delays []string) {
	must(channel.Confirm(false))
	for _, each := range delays {
		delay, err := strconv.Atoi(each)
		must(err)
		message := amqp.Publishing{
			MessageId:    rand.Text(),
			ContentType:  "text/plain",
			DeliveryMode: amqp.Persistent,
			Headers:      amqp.Table{"x-delay": delay, "tenant": "a"},
			Body:         []byte("remind after " + each),
		}
		fmt.Println(time.Now().UnixMilli(), delay, message.MessageId)
		confirmation, err := channel.PublishWithDeferredConfirm(exchange, "mail", false, false, message)
		must(err)
		if !confirmation.Wait() {
			log.Fatal("the broker refused ", message.MessageId)
		}
	}
}

func consume(channel *amqp.Channel) {
	_, err := channel.QueueDeclare(queue, true, false, false, false, nil)
	must(err)
	must(channel.QueueBind(queue, "mail", exchange+".due", false, nil))
	messages, err := channel.Consume(queue, "", false, false, false, false, nil)
	must(err)
	fmt.Println("waiting")
	for message := range messages {
		fmt.Println(time.Now().UnixMilli(), message.MessageId, message.Headers["tenant"], string(message.Body))
		must(message.Ack(false))
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
