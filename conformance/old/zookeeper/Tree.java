import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** Operations of ZooKeeper's Java client: `Tree ZOOKEEPER ROOT`. Writes a line for each answer. */
public class Tree {
    /** A step, which may be refused. */
    interface Step {
        Object run() throws Exception;
    }

    static final LinkedBlockingQueue<String> events = new LinkedBlockingQueue<String>();

    public static void main(String[] args) throws Exception {
        final String root = args[1];
        final ZooKeeper client = connect(args[0]);
        final ZooKeeper other = connect(args[0]);
        step("create", () -> make(client, root, "", CreateMode.PERSISTENT));
        step("create again", () -> make(client, root, "", CreateMode.PERSISTENT));
        step("create without a parent",
            () -> make(client, root + "/no/parent", "", CreateMode.PERSISTENT));
        step("create an ephemeral node", () -> make(client, root + "/e", "x", CreateMode.EPHEMERAL));
        step("create below an ephemeral node",
            () -> make(client, root + "/e/f", "x", CreateMode.PERSISTENT));
        for (int number = 0; number < 3; number++) {
            step("create a numbered node",
                () -> make(client, root + "/n-", "x", CreateMode.PERSISTENT_SEQUENTIAL));
        }
        step("children", () -> sorted(client.getChildren(root, watcher("children"))));
        step("data", () -> text(client.getData(root + "/e", watcher("data"), null)));
        step("no node", () -> client.getData(root + "/none", false, null));
        step("exists", () -> client.exists(root + "/new", watcher("exists")));
        step("another session creates", () -> make(other, root + "/new", "y", CreateMode.PERSISTENT));
        step("another session writes", () -> told(other.setData(root + "/e", new byte[] {'z'}, 0)));
        step("an old version", () -> told(other.setData(root + "/e", new byte[] {'z'}, 0)));
        step("events", () -> eventsOf(3));
        step("stat", () -> told(client.exists(root + "/e", false)));
        step("a transaction", () -> results(client.multi(Arrays.asList(
            Op.create(root + "/m", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
            Op.setData(root + "/new", new byte[] {'m'}, 0),
            Op.check(root + "/e", 1), Op.delete(root + "/m", -1)))));
        step("a refused transaction", () -> results(client.multi(Arrays.asList(
            Op.create(root + "/m", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
            Op.delete(root + "/none", -1), Op.check(root + "/e", 1)))));
        step("nothing of it", () -> client.exists(root + "/m", false));
        step("access list", () -> client.getACL(root + "/new", new Stat()).toString().trim());
        client.addAuthInfo("digest", "ann:secret".getBytes());
        step("set the access list", () -> told(
            client.setACL(root + "/new", ZooDefs.Ids.CREATOR_ALL_ACL, 0)));
        step("the list", () -> client.getACL(root + "/new", new Stat()).toString().trim());
        step("a stranger reads", () -> text(other.getData(root + "/new", false, null)));
        step("the owner reads", () -> text(client.getData(root + "/new", false, null)));
        step("delete a parent", () -> { client.delete(root, -1); return "done"; });
        final ZooKeeper again = connect(args[0], client);
        step("the ephemeral node after a move", () -> told(other.exists(root + "/e", false)));
        again.close();
        step("and after the end", () -> other.exists(root + "/e", false));
        step("a broker's node", () -> other.exists("/brokers/ids", false).getNumChildren());
        for (String name : sorted(other.getChildren(root, false))) {
            step("delete", () -> { other.delete(root + "/" + name, -1); return name; });
        }
        step("delete the root", () -> { other.delete(root, -1); return "done"; });
        other.close();
        Runtime.getRuntime().halt(0);
    }

    private static ZooKeeper connect(String address) throws Exception {
        return connect(address, null);
    }

    /** Connect; with a client given, take over its session. */
    private static ZooKeeper connect(String address, ZooKeeper old) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        Watcher watcher = event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) connected.countDown();
        };
        ZooKeeper client = old == null ? new ZooKeeper(address, 10000, watcher)
            : new ZooKeeper(address, 10000, watcher, old.getSessionId(), old.getSessionPasswd());
        if (!connected.await(30, TimeUnit.SECONDS)) throw new Exception("no connection");
        return client;
    }

    private static Watcher watcher(String name) {
        return event -> {
            String path = event.getPath();
            if (path != null) events.add(name + " " + event.getType() + path.replaceAll(".*/", " "));
        };
    }

    private static Object make(ZooKeeper client, String path, String data, CreateMode mode)
            throws Exception {
        return client.create(path, data.getBytes(), ZooDefs.Ids.OPEN_ACL_UNSAFE, mode);
    }

    private static List<String> eventsOf(int count) throws Exception {
        List<String> found = new ArrayList<String>();
        for (String event; found.size() < count;) {
            if ((event = events.poll(10, TimeUnit.SECONDS)) == null) break;
            found.add(event);
        }
        Collections.sort(found);
        return found;
    }

    private static String told(Stat stat) {
        return stat == null ? "none" : "version " + stat.getVersion() + ", children "
            + stat.getCversion() + " " + stat.getNumChildren() + ", list " + stat.getAversion()
            + ", bytes " + stat.getDataLength() + (stat.getEphemeralOwner() == 0 ? "" : ", owned");
    }

    private static List<String> results(List<OpResult> results) {
        List<String> names = new ArrayList<String>();
        for (OpResult result : results) names.add(result.getClass().getSimpleName());
        return names;
    }

    private static List<String> sorted(List<String> names) {
        Collections.sort(names);
        return names;
    }

    private static String text(byte[] data) {
        return data == null ? "null" : new String(data);
    }

    private static void step(String name, Step step) {
        String answer;
        try {
            answer = String.valueOf(step.run());
        } catch (KeeperException refusal) {
            answer = "refused: " + refusal.code();
            if (refusal.getResults() != null) {
                for (OpResult result : refusal.getResults()) {
                    answer += " " + (result instanceof OpResult.ErrorResult
                        ? ((OpResult.ErrorResult) result).getErr() : 0);
                }
            }
        } catch (Exception failure) {
            answer = failure.toString();
        }
        System.out.println(name + ": " + answer);
    }
}
