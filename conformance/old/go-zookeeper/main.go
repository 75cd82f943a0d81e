// Operations of Go's ZooKeeper client: `tree ZOOKEEPER ROOT`. Writes a line for each answer.
package main

import (
	"fmt"
	"log"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

var open = zk.WorldACL(zk.PermAll)

func main() {
	root := os.Args[2]
	client, other := connect(), connect()
	say("create", create(client, root, "", 0))
	say("create again", create(client, root, "", 0))
	say("create without a parent", create(client, root+"/no/parent", "", 0))
	say("create an ephemeral node", create(client, root+"/e", "x", zk.FlagEphemeral))
	say("create a numbered node", create(client, root+"/n-", "x", zk.FlagSequence))
	protected, err := client.CreateProtectedEphemeralSequential(root+"/p-", nil, open)
	say("create a protected node", answer(protected[max(0, len(protected)-13):], err))
	names, _, children, err := client.ChildrenW(root)
	say("children", answer(len(names), err))
	data, stat, changes, err := client.GetW(root + "/e")
	say("data", answer(fmt.Sprintf("%s, version %d", data, stat.Version), err))
	exists, _, created, err := client.ExistsW(root + "/new")
	say("exists", answer(exists, err))
	say("another session creates", create(other, root+"/new", "y", 0))
	stat, err = other.Set(root+"/e", []byte("z"), 0)
	say("another session writes", answer(stat.Version, err))
	_, err = other.Set(root+"/e", []byte("z"), 0)
	say("an old version", answer("done", err))
	for _, events := range []<-chan zk.Event{children, changes, created} {
		event := <-events
		say("event", fmt.Sprint(event.Type, " ", strings.TrimPrefix(event.Path, root)))
	}
	results, err := client.Multi(
		&zk.CreateRequest{Path: root + "/m", Acl: open},
		&zk.SetDataRequest{Path: root + "/new", Data: []byte("m"), Version: 0},
		&zk.CheckVersionRequest{Path: root + "/e", Version: 1},
		&zk.DeleteRequest{Path: root + "/m", Version: -1},
	)
	say("a transaction", answer(len(results), err))
	_, err = client.Multi(
		&zk.CreateRequest{Path: root + "/m", Acl: open},
		&zk.DeleteRequest{Path: root + "/none", Version: -1},
	)
	say("a refused transaction", answer("done", err))
	if err := client.AddAuth("digest", []byte("ann:secret")); err != nil {
		log.Fatal(err)
	}
	_, err = client.SetACL(root+"/new", zk.DigestACL(zk.PermAll, "ann", "secret"), 0)
	say("set the access list", answer("done", err))
	_, _, err = other.Get(root + "/new")
	say("a stranger reads", answer("done", err))
	mine, theirs := zk.NewLock(client, root+"/lock", open), zk.NewLock(other, root+"/lock", open)
	say("lock", answer("done", mine.Lock()))
	locked := make(chan error)
	go func() { locked <- theirs.Lock() }()
	say("unlock", answer("done", mine.Unlock()))
	say("the other's lock", answer("done", <-locked))
	say("the other's unlock", answer("done", theirs.Unlock()))
	client.Close()
	for exists = true; exists; time.Sleep(100 * time.Millisecond) {
		if exists, _, err = other.Exists(root + "/e"); err != nil {
			log.Fatal(err)
		}
	}
	names, _, err = other.Children(root)
	sort.Strings(names)
	say("left", answer(names, err))
	for _, name := range names {
		say("delete", answer(name, other.Delete(root+"/"+name, -1)))
	}
	say("delete the root", answer("done", other.Delete(root, -1)))
	other.Close()
}

func connect() *zk.Conn {
	quiet := zk.WithLogInfo(false)
	client, events, err := zk.Connect([]string{os.Args[1]}, 10*time.Second, quiet)
	if err != nil {
		log.Fatal(err)
	}
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	return client
}

func create(client *zk.Conn, path, data string, flags int32) string {
	made, err := client.Create(path, []byte(data), flags, open)
	return answer(made, err)
}

func answer(what any, err error) string {
	if err != nil {
		return "refused: " + err.Error()
	}
	return fmt.Sprint(what)
}

func say(step, answer string) {
	fmt.Printf("%s: %s\n", step, answer)
}
