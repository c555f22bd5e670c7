// Reminders by Kafka, later: "publish 3000 1000" (ms), and "consume".
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	servers = cmp.Or(os.Getenv("KAFKA"), "localhost:9092")
	topic   = cmp.Or(os.Getenv("TOPIC"), "reminders")
)

func main() {
	if os.Args[1] == "publish" {
		publish(os.Args[2:])
	} else {
		consume()
	}
}

func publish(delays []string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers), kgo.DefaultProduceTopic(topic+"-later"))
	must(err)
	defer client.Close()
	for _, delay := range delays {
		ms, err := strconv.ParseInt(delay, 10, 64)
		must(err)
		record := kgo.KeyStringRecord("customer-7", "remind after "+delay)
		record.Headers = []kgo.RecordHeader{
			{Key: "x-delay", Value: []byte(delay)},
			{Key: "tenant", Value: []byte("a")},
		}
		fmt.Println(time.Now().UnixMilli()+ms, string(record.Value))
		must(client.ProduceSync(context.Background(), record).FirstErr())
	}
}

func consume() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(topic+"-mail"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	must(err)
	defer client.Close()
	for {
		fetches := client.PollFetches(context.Background())
		must(fetches.Err())
		fetches.EachRecord(show)
	}
}

func show(record *kgo.Record) {
	headers := map[string]string{}
	for _, each := range record.Headers {
		headers[each.Key] = string(each.Value)
	}
	fmt.Println(time.Now().UnixMilli(), string(record.Value), string(record.Key), headers["tenant"])
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
