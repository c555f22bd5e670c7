import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConnectionFactory;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;

/** Reminders by mail, later: "publish 3000 1000" (ms), and "consume". */
public class Reminders {
    static final String EXCHANGE = System.getenv().getOrDefault("EXCHANGE", "reminders");
    static final String QUEUE = EXCHANGE + ".mail";

    public static void main(String[] args) throws Exception {
        var factory = new ConnectionFactory();
        factory.setUri(System.getenv().getOrDefault("AMQP_URL", "amqp://guest:guest@localhost:5672/%2f"));
        try (var connection = factory.newConnection(); var channel = connection.createChannel()) {
            channel.exchangeDeclarePassive(EXCHANGE);
            if (args[0].equals("publish")) {
                channel.confirmSelect();
                for (int i = 1; i < args.length; i++) publish(channel, Integer.parseInt(args[i]));
                channel.waitForConfirmsOrDie(30_000);
            } else {
                consume(channel);
                new CountDownLatch(1).await();
            }
        }
    }

    static void publish(Channel channel, int delay) throws Exception {
        var properties = new BasicProperties.Builder()
            .messageId(UUID.randomUUID().toString())
            .contentType("text/plain")
            .deliveryMode(2)
            .headers(Map.of("x-delay", delay, "tenant", "a"))
            .build();
        System.out.println(now() + " " + delay + " " + properties.getMessageId());
        channel.basicPublish(EXCHANGE, "mail", properties, ("remind after " + delay).getBytes());
    }

    static void consume(Channel channel) throws Exception {
        channel.queueDeclare(QUEUE, true, false, false, null);
        channel.queueBind(QUEUE, EXCHANGE + ".due", "mail");
        channel.basicConsume(QUEUE, false, (tag, message) -> {
            var properties = message.getProperties();
            System.out.println(now() + " " + properties.getMessageId() + " "
                + properties.getHeaders().get("tenant") + " " + new String(message.getBody()));
            channel.basicAck(message.getEnvelope().getDeliveryTag(), false);
        }, tag -> System.exit(1));
        System.out.println("waiting");
    }

    static long now() {
        return System.currentTimeMillis();
    }
}
