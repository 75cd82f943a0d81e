import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.I0Itec.zkclient.IZkChildListener;
import org.I0Itec.zkclient.IZkDataListener;
import org.I0Itec.zkclient.ZkClient;
import org.I0Itec.zkclient.exception.ZkException;

/** What programs do with zkClient: `Recipes ZOOKEEPER ROOT`. Writes a line for each answer. */
public class Recipes {
    static final LinkedBlockingQueue<String> events = new LinkedBlockingQueue<String>();

    public static void main(String[] args) throws Exception {
        String root = args[1];
        ZkClient client = new ZkClient(args[0], 10000, 30000);
        ZkClient other = new ZkClient(args[0], 10000, 30000);
        client.createPersistent(root + "/a/b", true);
        say("parents", client.countChildren(root));
        client.subscribeChildChanges(root + "/a", new IZkChildListener() {
            public void handleChildChange(String path, List<String> names) {
                if (names == null) return;
                List<String> sorted = new ArrayList<String>(names);
                Collections.sort(sorted);
                events.add("children " + sorted);
            }
        });
        other.createEphemeral(root + "/a/e", "one");
        say("event", events.poll(10, TimeUnit.SECONDS));
        say("data", client.<Object>readData(root + "/a/e"));
        client.subscribeDataChanges(root + "/a/e", new IZkDataListener() {
            public void handleDataChange(String path, Object data) {
                events.add("data " + data);
            }

            public void handleDataDeleted(String path) {
                events.add("deleted");
            }
        });
        other.writeData(root + "/a/e", "two");
        say("event", events.poll(10, TimeUnit.SECONDS));
        say("numbered", other.createPersistentSequential(root + "/n-", "x"));
        say("numbered", other.createEphemeralSequential(root + "/n-", "x"));
        try {
            client.createPersistent(root + "/a");
        } catch (ZkException refusal) {
            say("again", refusal.getClass().getSimpleName());
        }
        other.close();
        List<String> last = new ArrayList<String>();
        last.add(events.poll(10, TimeUnit.SECONDS));
        last.add(events.poll(10, TimeUnit.SECONDS));
        Collections.sort(last);
        say("events of the end", last);
        say("exists", client.exists(root + "/a/e"));
        say("deleted", client.deleteRecursive(root));
        client.close();
        Runtime.getRuntime().halt(0);
    }

    private static void say(String step, Object answer) {
        System.out.println(step + ": " + answer);
    }
}
