import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * A consumer of the queue: KIND ADDRESS TOPIC GROUP. Prints the events of `../../../../worker.py`,
 * by the same rules.
 */
public class QueueWorker {
    static final double RELEASED_PART = 0.05;
    static final int PACE_MS = 1;
    static final Duration POLL = Duration.ofSeconds(1);

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "share" -> share(args[1], args[2], args[3]);
            case "pulsar" -> pulsar(args[1], args[2], args[3]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void share(String address, String topic, String group) throws Exception {
        Random random = new Random();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (var consumer = new KafkaShareConsumer<byte[], byte[]>(settings)) {
            consumer.subscribe(List.of(topic));
            while (true) {
                var records = consumer.poll(POLL);
                StringBuilder lines = new StringBuilder();
                for (var record : records) {
                    event(lines, "R", record.value(), record.deliveryCount().orElse((short) 0));
                }
                write(lines);
                List<byte[]> done = new ArrayList<>();
                for (var record : records) {
                    Thread.sleep(PACE_MS);
                    if (random.nextDouble() < RELEASED_PART) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                        event(lines, "L", record.value(), 0);
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        done.add(record.value());
                    }
                }
                for (var result : consumer.commitSync(Duration.ofSeconds(10)).entrySet()) {
                    if (result.getValue().isPresent()) {
                        throw new IllegalStateException(result.getKey() + ": " + result.getValue().get());
                    }
                }
                for (byte[] value : done) {
                    event(lines, "D", value, 0);
                }
                write(lines);
            }
        }
    }

    /** The broker answers each acknowledgement. */
    static void pulsar(String address, String topic, String group) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(address).build();
            Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName(group)
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .receiverQueueSize(50)
                .enableBatchIndexAcknowledgment(true)
                .isAckReceiptEnabled(true)
                .subscribe()) {
            while (true) {
                Message<byte[]> message = consumer.receive((int) POLL.toMillis(), TimeUnit.MILLISECONDS);
                if (message == null) {
                    continue;
                }
                byte[] value = message.getData();
                StringBuilder line = new StringBuilder();
                event(line, "R", value, 0);
                write(line);
                Thread.sleep(PACE_MS);
                consumer.acknowledgeAsync(message).whenComplete((none, error) -> {
                    if (error != null) {
                        System.err.println("acknowledgement failed: " + error);
                        return;
                    }
                    StringBuilder answered = new StringBuilder();
                    event(answered, "D", value, 0);
                    write(answered);
                });
            }
        }
    }

    /** Appends a line. Java's clock of nanoseconds is the monotonic clock of the system, as Python's. */
    static void event(StringBuilder lines, String event, byte[] value, int count) {
        lines.append(System.nanoTime()).append(' ').append(event).append(' ');
        lines.append(new String(value, StandardCharsets.UTF_8)).append(' ').append(count).append('\n');
    }

    /** Writes the lines at once: a killed worker's last events count. */
    static synchronized void write(StringBuilder lines) {
        byte[] data = lines.toString().getBytes(StandardCharsets.UTF_8);
        System.out.write(data, 0, data.length);
        System.out.flush();
        lines.setLength(0);
    }
}
