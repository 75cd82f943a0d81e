import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;

/** The recipes of Curator: `Recipes ZOOKEEPER ROOT`. Writes a line for each answer. */
public class Recipes {
    /** A step, which may be refused. */
    interface Step {
        Object run() throws Exception;
    }

    static String address;

    public static void main(String[] args) throws Exception {
        address = args[0];
        String root = args[1];
        CuratorFramework a = connect();
        CuratorFramework b = connect();
        step("create with parents", () -> a.create().creatingParentsIfNeeded()
            .withMode(CreateMode.PERSISTENT).forPath(root + "/x/y", "data".getBytes()));
        step("protected", () -> a.create().withProtection()
            .withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(root + "/x/p-").replaceAll(
                "_c_[0-9a-f-]+", "GUID"));
        step("lock", () -> locked(a, b, root + "/lock"));
        step("read and write lock", () -> {
            InterProcessReadWriteLock mine = new InterProcessReadWriteLock(a, root + "/rw");
            InterProcessReadWriteLock theirs = new InterProcessReadWriteLock(b, root + "/rw");
            mine.readLock().acquire();
            boolean reads = theirs.readLock().acquire(5, TimeUnit.SECONDS);
            boolean writes = theirs.writeLock().acquire(1, TimeUnit.SECONDS);
            mine.readLock().release();
            theirs.readLock().release();
            boolean then = theirs.writeLock().acquire(5, TimeUnit.SECONDS);
            theirs.writeLock().release();
            return reads + " " + writes + " " + then;
        });
        step("semaphore", () -> {
            InterProcessSemaphoreV2 mine = new InterProcessSemaphoreV2(a, root + "/semaphore", 2);
            InterProcessSemaphoreV2 theirs = new InterProcessSemaphoreV2(b, root + "/semaphore", 2);
            Object first = mine.acquire(5, TimeUnit.SECONDS);
            Object second = theirs.acquire(5, TimeUnit.SECONDS);
            Object third = theirs.acquire(1, TimeUnit.SECONDS);
            return (first != null) + " " + (second != null) + " " + (third != null);
        });
        step("leader", () -> {
            LeaderLatch first = new LeaderLatch(a, root + "/leader", "first");
            first.start();
            first.await(10, TimeUnit.SECONDS);
            LeaderLatch second = new LeaderLatch(b, root + "/leader", "second");
            second.start();  // Its node comes a moment later.
            while (b.getChildren().forPath(root + "/leader").size() < 2) {
                Thread.sleep(10);
            }
            String before = b.getChildren().forPath(root + "/leader").size() + " "
                + first.hasLeadership() + " " + second.hasLeadership();
            first.close();
            second.await(10, TimeUnit.SECONDS);
            String then = " " + second.hasLeadership();
            second.close();
            return before + then;
        });
        step("counter", () -> {
            DistributedAtomicLong mine =
                new DistributedAtomicLong(a, root + "/counter", new RetryNTimes(10, 10));
            DistributedAtomicLong theirs =
                new DistributedAtomicLong(b, root + "/counter", new RetryNTimes(10, 10));
            for (int times = 0; times < 5; times++) {
                mine.increment();
                theirs.increment();
            }
            return mine.get().postValue();
        });
        step("shared count", () -> {
            SharedCount mine = new SharedCount(a, root + "/count", 3);
            mine.start();
            mine.setCount(4);
            SharedCount theirs = new SharedCount(b, root + "/count", 3);
            theirs.start();
            int count = theirs.getCount();
            mine.close();
            theirs.close();
            return count;
        });
        step("queue", () -> {
            SimpleDistributedQueue mine = new SimpleDistributedQueue(a, root + "/queue");
            SimpleDistributedQueue theirs = new SimpleDistributedQueue(b, root + "/queue");
            for (String item : new String[] {"one", "two"}) mine.offer(item.getBytes());
            return new String(theirs.take()) + " " + new String(theirs.poll(5, TimeUnit.SECONDS))
                + " " + theirs.poll();
        });
        step("barrier", () -> {
            DistributedBarrier mine = new DistributedBarrier(a, root + "/barrier");
            DistributedBarrier theirs = new DistributedBarrier(b, root + "/barrier");
            mine.setBarrier();
            boolean passes = theirs.waitOnBarrier(500, TimeUnit.MILLISECONDS);
            mine.removeBarrier();
            return passes + " " + theirs.waitOnBarrier(10, TimeUnit.SECONDS);
        });
        step("cache", () -> cached(a, b, root + "/cache"));
        b.close();
        step("delete", () -> {
            a.delete().deletingChildrenIfNeeded().forPath(root);
            return "done";
        });
        a.close();
        Runtime.getRuntime().halt(0);
    }

    private static CuratorFramework connect() throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(address, 10000, 15000, new RetryNTimes(3, 500));
        client.start();
        client.blockUntilConnected(30, TimeUnit.SECONDS);
        return client;
    }

    private static Object locked(CuratorFramework a, CuratorFramework b, String path)
            throws Exception {
        InterProcessMutex mine = new InterProcessMutex(a, path);
        InterProcessMutex theirs = new InterProcessMutex(b, path);
        mine.acquire();
        boolean early = theirs.acquire(1, TimeUnit.SECONDS);
        mine.release();
        boolean late = theirs.acquire(5, TimeUnit.SECONDS);
        theirs.release();
        return early + " " + late;
    }

    private static Object cached(CuratorFramework a, CuratorFramework b, String path)
            throws Exception {
        a.create().forPath(path);
        LinkedBlockingQueue<String> events = new LinkedBlockingQueue<String>();
        PathChildrenCache cache = new PathChildrenCache(a, path, true);
        cache.getListenable().addListener((client, event) -> {
            if (event.getData() != null) {
                byte[] data = event.getData().getData();
                events.add(event.getType() + " " + (data == null ? null : new String(data)));
            }
        });
        cache.start(PathChildrenCache.StartMode.BUILD_INITIAL_CACHE);
        List<String> lines = new ArrayList<String>();
        b.create().forPath(path + "/k", "1".getBytes());
        lines.add(events.poll(10, TimeUnit.SECONDS));
        b.setData().forPath(path + "/k", "2".getBytes());
        lines.add(events.poll(10, TimeUnit.SECONDS));
        b.delete().forPath(path + "/k");
        lines.add(events.poll(10, TimeUnit.SECONDS));
        cache.close();
        return lines;
    }

    private static void step(String name, Step step) {
        try {
            System.out.println(name + ": " + step.run());
        } catch (KeeperException refusal) {
            System.out.println(name + ": refused: " + refusal.code());
        } catch (Exception failure) {
            System.out.println(name + ": " + failure);
        }
    }
}
