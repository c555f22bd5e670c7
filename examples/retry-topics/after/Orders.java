package shop;

import org.apache.kafka.common.TopicPartition;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer.HeaderNames.HeadersToAdd;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.util.backoff.FixedBackOff;

/** Sends orders out of a warehouse; what fails goes to the intake's topic, and comes back. */
@SpringBootApplication
public class Orders {
    public static void main(String[] args) {
        SpringApplication.run(Orders.class, args);
    }

    @KafkaListener(groupId = "${TOPIC:orders}-warehouse", topics = "${TOPIC:orders}")
    void send(String order) {
        System.out.println("trying " + order + " at " + System.currentTimeMillis());
        if (order.startsWith("closed")) throw new IllegalStateException("the warehouse is closed");
    }

    @Bean
    DefaultErrorHandler later(KafkaTemplate<?, ?> template, @Value("${TOPIC:orders}-later") String topic) {
        var later = new DeadLetterPublishingRecoverer(template, (order, error) -> new TopicPartition(topic, -1));
        later.setAppendOriginalHeaders(false); // the first round's timestamp and offset stay
        later.excludeHeader(HeadersToAdd.EX_STACKTRACE);
        return new DefaultErrorHandler(later, new FixedBackOff(0, 0));
    }

    @KafkaListener(groupId = "${TOPIC:orders}-given-up", topics = "${TOPIC:orders}-dlt")
    void giveUp(String order) {
        System.out.println("gave up " + order);
    }
}
