package shop;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.retry.annotation.Backoff;

/** Sends orders out of a warehouse; what fails is tried again after 1 s and 2 s. */
@SpringBootApplication
public class Orders {
    public static void main(String[] args) {
        SpringApplication.run(Orders.class, args);
    }

    @RetryableTopic(attempts = "3", backoff = @Backoff(delay = 1000, multiplier = 2))
    @KafkaListener(groupId = "${TOPIC:orders}-warehouse", topics = "${TOPIC:orders}")
    void send(String order) {
        System.out.println("trying " + order + " at " + System.currentTimeMillis());
        if (order.startsWith("closed")) throw new IllegalStateException("the warehouse is closed");
    }

    @DltHandler
    void giveUp(String order) {
        System.out.println("gave up " + order);
    }
}
