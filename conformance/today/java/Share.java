// What a user of Kafka's share groups writes, from Java 4.2 on; see ../README.md.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

public class Share {
    static final int RECORDS = 20;

    public static void main(String[] args) throws Exception {
        Properties common = new Properties();
        common.put("bootstrap.servers", args[1]);
        String topic = args[2], group = args[3];
        try (var admin = Admin.create(common)) {
            var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            var early = new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(early))).all().get();
            Properties sending = new Properties();
            sending.putAll(common);
            Today.serializers(sending);
            try (var producer = new KafkaProducer<byte[], byte[]>(sending)) {
                for (int number = 0; number < RECORDS; number++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, Today.bytes("" + number))).get();
                }
            }
            consume(common, topic, group);
            admin.describeShareGroups(List.of(group)).all().get();
            var offsets = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group).get();
            Today.check(offsets.get(new TopicPartition(topic, 0)).startOffset() == RECORDS, "all acknowledged");
            admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), 5L)).all().get();
            admin.deleteShareGroups(List.of(group)).all().get();
        }
        Today.say("{\"done\": true}");
    }

    /** Releases each third record once, rejects the last, and accepts the others. */
    static void consume(Properties common, String topic, String group) {
        Properties receiving = new Properties();
        receiving.putAll(common);
        Today.deserializers(receiving);
        receiving.put("group.id", group);
        receiving.put("share.acknowledgement.mode", "explicit");
        Map<Long, Integer> deliveries = new HashMap<>();
        int done = 0;
        try (var consumer = new KafkaShareConsumer<byte[], byte[]>(receiving)) {
            consumer.subscribe(List.of(topic));
            while (done < RECORDS) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    int count = deliveries.merge(record.offset(), 1, Integer::sum);
                    Today.check(record.deliveryCount().get() == count, "delivery " + count);
                    boolean isReleased = record.offset() % 3 == 0 && count == 1;
                    var kind = record.offset() == RECORDS - 1 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
                    consumer.acknowledge(record, isReleased ? AcknowledgeType.RELEASE : kind);
                    done += isReleased ? 0 : 1;
                }
                consumer.commitSync().forEach((place, error) -> Today.check(error.isEmpty(), place + ": " + error));
            }
        }
    }
}
