import backtype.storm.Config;
import backtype.storm.generated.StormTopology;
import backtype.storm.metric.api.IMetric;
import backtype.storm.spout.ISpoutOutputCollector;
import backtype.storm.spout.SchemeAsMultiScheme;
import backtype.storm.spout.SpoutOutputCollector;
import backtype.storm.task.TopologyContext;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.I0Itec.zkclient.ZkClient;
import storm.kafka.KafkaSpout;
import storm.kafka.SpoutConfig;
import storm.kafka.StringScheme;
import storm.kafka.ZkHosts;

/** A spout of storm-kafka without a cluster: `Storm ZOOKEEPER TOPIC GROUP COUNT`. */
public class Storm {
    /** Collects what the spout emits. */
    static class Collector implements ISpoutOutputCollector {
        final List<Object> ids = new ArrayList<Object>();
        final List<String> values = new ArrayList<String>();

        public List<Integer> emit(String stream, List<Object> tuple, Object id) {
            values.add((String) tuple.get(0));
            ids.add(id);
            return Collections.emptyList();
        }

        public void emitDirect(int task, String stream, List<Object> tuple, Object id) {
            emit(stream, tuple, id);
        }

        public void reportError(Throwable error) {
            throw new RuntimeException(error);
        }
    }

    /** The only task of a topology with a single spout. */
    static class Context extends TopologyContext {
        Context(Map<Object, Object> settings) {
            super(new StormTopology(), settings, Collections.singletonMap(1, "spout"),
                Collections.singletonMap("spout", Arrays.asList(1)),
                new HashMap<String, Map<String, backtype.storm.tuple.Fields>>(), "topology", "", "",
                1, 1, Arrays.asList(1), new HashMap<String, Object>(),
                new HashMap<String, Object>(), new HashMap<String, Object>(),
                new HashMap<Integer, Map<Integer, Map<String, IMetric>>>(), null);
        }

        @Override
        public <T extends IMetric> T registerMetric(String name, T metric, int seconds) {
            return metric;
        }
    }

    public static void main(String[] args) throws Exception {
        String[] address = args[0].split(":");
        Map<Object, Object> settings = new HashMap<Object, Object>();
        settings.put(Config.STORM_ZOOKEEPER_SERVERS, Arrays.asList(address[0]));
        settings.put(Config.STORM_ZOOKEEPER_PORT, Integer.valueOf(address[1]));
        settings.put(Config.STORM_ZOOKEEPER_SESSION_TIMEOUT, 20000);
        settings.put(Config.STORM_ZOOKEEPER_CONNECTION_TIMEOUT, 15000);
        settings.put(Config.STORM_ZOOKEEPER_RETRY_TIMES, 5);
        settings.put(Config.STORM_ZOOKEEPER_RETRY_INTERVAL, 1000);
        settings.put(Config.TOPOLOGY_NAME, "old");
        SpoutConfig wanted = new SpoutConfig(new ZkHosts(args[0]), args[1], "/storm", args[2]);
        wanted.scheme = new SchemeAsMultiScheme(new StringScheme());
        wanted.startOffsetTime = kafka.api.OffsetRequest.EarliestTime();
        // A spout without a stored position begins at the end, unless told otherwise.
        wanted.forceFromStart = !new ZkClient(args[0]).exists("/storm/" + args[2]);
        Collector collector = new Collector();
        KafkaSpout spout = new KafkaSpout(wanted);
        spout.open(settings, new Context(settings), new SpoutOutputCollector(collector));
        int count = Integer.parseInt(args[3]);
        while (collector.values.size() < count) spout.nextTuple();
        for (Object id : collector.ids) spout.ack(id);
        spout.deactivate(); // This stores the positions.
        for (String value : collector.values) System.out.println(value);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
