import java.util.Collections;
import java.util.Properties;
import java.util.TreeMap;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.ConsumerTimeoutException;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * A member of a high-level group of Kafka 0.8: `GroupMember ZOOKEEPER GROUP TOPIC ID`.
 *
 * Writes a line `PARTITION FIRST LAST` for each run of offsets, and commits only after the lines.
 */
public class GroupMember {
    private static final long COMMIT_MS = 300;
    private static final TreeMap<Integer, long[]> runs = new TreeMap<Integer, long[]>();
    private static ConsumerConnector connector;
    private static long due = System.currentTimeMillis() + COMMIT_MS;

    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", args[0]);
        settings.put("group.id", args[1]);
        settings.put("consumer.id", args[3]);
        settings.put("auto.commit.enable", "false");
        settings.put("auto.offset.reset", "smallest");
        settings.put("consumer.timeout.ms", "" + COMMIT_MS);
        settings.put("zookeeper.connection.timeout.ms", "30000");
        settings.put("rebalance.max.retries", "10");
        connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        ConsumerIterator<byte[], byte[]> messages =
            connector.createMessageStreams(Collections.singletonMap(args[2], 1))
                .get(args[2]).get(0).iterator();
        while (true) {
            try {
                while (messages.hasNext()) {
                    note(messages.next());
                    if (System.currentTimeMillis() >= due) commit();
                }
            } catch (ConsumerTimeoutException none) {
                commit();
            }
        }
    }

    private static void note(MessageAndMetadata<byte[], byte[]> message) {
        long[] run = runs.get(message.partition());
        if (run != null && message.offset() == run[1] + 1) {
            run[1] = message.offset();
            return;
        }
        if (run != null) write(message.partition(), run);
        runs.put(message.partition(), new long[] {message.offset(), message.offset()});
    }

    private static void write(int partition, long[] run) {
        System.out.println(partition + " " + run[0] + " " + run[1]);
    }

    private static void commit() {
        for (java.util.Map.Entry<Integer, long[]> entry : runs.entrySet()) {
            write(entry.getKey(), entry.getValue());
        }
        runs.clear();
        System.out.flush();
        connector.commitOffsets();
        due = System.currentTimeMillis() + COMMIT_MS;
    }
}
