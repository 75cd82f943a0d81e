import java.util.Collections;
import org.apache.flume.Channel;
import org.apache.flume.Context;
import org.apache.flume.Event;
import org.apache.flume.Transaction;
import org.apache.flume.channel.ChannelProcessor;
import org.apache.flume.channel.MemoryChannel;
import org.apache.flume.channel.ReplicatingChannelSelector;
import org.apache.flume.conf.Configurables;
import org.apache.flume.source.kafka.KafkaSource;

/** Flume's Kafka source with a channel in memory: `Flume ZOOKEEPER TOPIC GROUP COUNT`. */
public class Flume {
    public static void main(String[] args) throws Exception {
        MemoryChannel channel = new MemoryChannel();
        channel.setName("channel");
        Configurables.configure(channel, new Context());
        channel.start();
        ReplicatingChannelSelector selector = new ReplicatingChannelSelector();
        selector.setChannels(Collections.<Channel>singletonList(channel));
        Context settings = new Context();
        settings.put("zookeeperConnect", args[0]);
        settings.put("topic", args[1]);
        settings.put("groupId", args[2]);
        settings.put("kafka.auto.offset.reset", "smallest");
        settings.put("kafka.zookeeper.connection.timeout.ms", "30000");
        settings.put("batchSize", args[3]);
        settings.put("batchDurationMillis", "2000");
        KafkaSource source = new KafkaSource();
        source.setName("source");
        Configurables.configure(source, settings);
        source.setChannelProcessor(new ChannelProcessor(selector));
        source.start();
        int left = Integer.parseInt(args[3]);
        while (left > 0) {
            source.process();
            left -= taken(channel);
        }
        source.stop();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static int taken(MemoryChannel channel) {
        Transaction transaction = channel.getTransaction();
        transaction.begin();
        int count = 0;
        for (Event event; (event = channel.take()) != null; count++) {
            System.out.println(new String(event.getBody()));
        }
        transaction.commit();
        transaction.close();
        return count;
    }
}
