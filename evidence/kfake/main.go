// Command kfake runs franz-go's kfake, an implementation of Kafka brokers that shares no code with
// Apache Kafka, and does to it what the lines on standard input ask for.
//
// Each line is a JSON object, {"do": "fault", …}; each is answered by a line, {"result": …} or
// {"error": "…"}. The first line of all is {"result": ["127.0.0.1:port", …]}, the brokers' addresses.
// It ends with its standard input.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// command is what a line asks for. Which fields are used is said at each method.
type command struct {
	Do         string            `json:"do"`
	Api        string            `json:"api"`
	Error      string            `json:"error"`
	Count      int               `json:"count"`
	Skip       int               `json:"skip"`
	Topic      string            `json:"topic"`
	Partition  int32             `json:"partition"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs"`
	Node       int32             `json:"node"`
	Ms         int32             `json:"ms"`
}

const sizeBytes = 4

type seen struct {
	Api  string `json:"api"`
	Node int32  `json:"node"`
	Ns   int64  `json:"ns"`
}

type broker struct {
	cluster  *kfake.Cluster
	requests []seen
	mu       sync.Mutex
	released chan struct{}
	held     atomic.Int64
	last     *kfake.FaultHandle
	cuts     *cuts
}

func main() {
	brokers := flag.Int("brokers", 1, "how many")
	version := flag.String("version", "", "of the Kafka whose requests are known; the newest if not given")
	configs := flag.String("configs", "{}", "of the brokers, as JSON")
	offered := flag.String("offered", "{}", "highest version by API, as JSON; -1: not offered")
	limit := flag.Uint("limit", math.MaxUint32, "bytes of a request; a larger one ends its connection")
	flag.Parse()

	b := &broker{released: make(chan struct{}), cuts: &cuts{limit: uint32(*limit)}}
	asked := map[string]string{}
	fail(json.Unmarshal([]byte(*configs), &asked))
	options := []kfake.Opt{
		kfake.NumBrokers(*brokers),
		kfake.BrokerConfigs(asked),
		kfake.ListenFn(b.cuts.listen),
		kfake.SleepOutOfOrder(),
	}
	versions := kversion.Stable()
	if *version != "" {
		versions = kversion.FromString(*version)
		if versions == nil {
			fail(fmt.Errorf("no version of Kafka: %q", *version))
		}
	}
	highest := map[string]int16{}
	fail(json.Unmarshal([]byte(*offered), &highest))
	for api, version := range highest {
		key, err := keyOf(api)
		fail(err)
		versions.SetMaxKeyVersion(key, version)
	}
	if *version != "" || len(highest) > 0 {
		options = append(options, kfake.MaxVersions(versions))
	}
	cluster, err := kfake.NewCluster(options...)
	fail(err)
	b.cluster = cluster
	cluster.Control(b.note)
	answer(cluster.ListenAddrs(), nil)

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		fail(json.Unmarshal(lines.Bytes(), &c))
		answer(b.do(c))
	}
}

func (b *broker) do(c command) (any, error) {
	switch c.Do {
	case "topic": // topic, partitions, configs
		return nil, b.cluster.CreateTopic(c.Topic, c.Partitions, c.Configs)
	case "delete": // topic
		return nil, b.cluster.DeleteTopic(c.Topic)
	case "fault": // api, error, count, skip, topic (or all)
		return nil, b.fault(c)
	case "hits": // requests that were answered with the last fault
		return b.last.Hits(), nil
	case "close": // api, count, skip: the connection is ended, and nothing is done
		return nil, b.control(c, func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("closed as asked"), true
		})
	case "lose": // api, count, skip: what is asked for is done, and the connection ended instead of the answer
		return nil, b.control(c, func(kmsg.Request) (kmsg.Response, error, bool) {
			b.cuts.next.Store(true)
			return nil, nil, false
		})
	case "throttle": // count, skip, ms, error: all partitions of a produce request have the error
		return nil, b.throttle(c)
	case "hold": // api, count, skip: what is asked for is done once it is released
		return nil, b.control(c, func(kmsg.Request) (kmsg.Response, error, bool) {
			released := b.released
			b.held.Add(1)
			b.cluster.SleepControl(func() { <-released })
			return nil, nil, false
		})
	case "held":
		return b.held.Load(), nil
	case "release":
		close(b.released)
		b.released = make(chan struct{})
		return nil, nil
	case "move": // topic, partition, node
		return nil, b.cluster.MoveTopicPartition(c.Topic, c.Partition, c.Node)
	case "leader": // topic, partition
		return b.cluster.LeaderFor(c.Topic, c.Partition), nil
	case "partition": // topic, partition
		return b.cluster.PartitionInfo(c.Topic, c.Partition), nil
	case "requests": // all that came so far
		b.mu.Lock()
		defer b.mu.Unlock()
		return append([]seen{}, b.requests...), nil
	}
	return nil, fmt.Errorf("what is %q?", c.Do)
}

// note remembers every request. It answers none.
func (b *broker) note(request kmsg.Request) (kmsg.Response, error, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := kmsg.NameForKey(request.Key())
	b.requests = append(b.requests, seen{name, b.cluster.CurrentNode(), time.Now().UnixNano()})
	return nil, nil, false
}

func (b *broker) fault(c command) error {
	key, err := keyOf(c.Api)
	if err != nil {
		return err
	}
	refusal, err := errorOf(c.Error)
	if err != nil {
		return err
	}
	left := c.Skip
	asked := map[kmsg.Request]bool{}
	b.last = b.cluster.Fault(kfake.Fault{
		Keys:  []kmsg.Key{kmsg.Key(key)},
		Topic: c.Topic,
		Err:   refusal,
		Count: c.Count,
		When: func(request kmsg.Request) bool {
			// It is asked once for each partition.
			isNow, isKnown := asked[request]
			if !isKnown {
				isNow = left <= 0
				left--
				asked[request] = isNow
			}
			return isNow
		},
	})
	return nil
}

type control func(kmsg.Request) (kmsg.Response, error, bool)

// control has count requests answered by f, after the first skip.
func (b *broker) control(c command, f control) error {
	key, err := keyOf(c.Api)
	if err != nil {
		return err
	}
	var asked atomic.Int64
	b.cluster.ControlKey(key, func(request kmsg.Request) (kmsg.Response, error, bool) {
		number := asked.Add(1)
		b.cluster.KeepControl()
		if number <= int64(c.Skip) {
			return nil, nil, false
		}
		if number > int64(c.Skip+c.Count) {
			b.cluster.DropControl()
			return nil, nil, false
		}
		response, err, handled := f(request)
		if handled {
			b.note(request) // which is left out for what another control has answered
		}
		return response, err, handled
	})
	return nil
}

func (b *broker) throttle(c command) error {
	refusal, err := errorOf(c.Error)
	if err != nil {
		return err
	}
	c.Api = "Produce"
	return b.control(c, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		request := kreq.(*kmsg.ProduceRequest)
		response := request.ResponseKind().(*kmsg.ProduceResponse)
		response.ThrottleMillis = c.Ms
		for _, asked := range request.Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
			for _, p := range asked.Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, refusal.Code
				topic.Partitions = append(topic.Partitions, partition)
			}
			response.Topics = append(response.Topics, topic)
		}
		return response, nil, true
	})
}

func keyOf(api string) (int16, error) {
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if kmsg.NameForKey(key) == api {
			return key, nil
		}
	}
	return 0, fmt.Errorf("no API is called %q", api)
}

func errorOf(name string) (*kerr.Error, error) {
	for code := int16(-1); code < 200; code++ {
		if known := kerr.TypedErrorForCode(code); known != nil && known.Message == name {
			return known, nil
		}
	}
	return nil, fmt.Errorf("no error is called %q", name)
}

// cuts ends connections instead of answering: the next answer of all, when next is set. One client
// writes at a time, so it is the answer to the request that set it. It also ends a connection whose
// client announces a request of more than limit bytes.
type cuts struct {
	next  atomic.Bool
	limit uint32
}

func (c *cuts) listen(network, address string) (net.Listener, error) {
	listener, err := net.Listen(network, address)
	return &cutListener{listener, c}, err
}

type cutListener struct {
	net.Listener
	cuts *cuts
}

func (l *cutListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &cutConn{conn, l.cuts}, nil
}

type cutConn struct {
	net.Conn
	cuts *cuts
}

// Read ends the connection at the size of a too large request, which kfake reads on its own.
func (c *cutConn) Read(data []byte) (int, error) {
	count, err := c.Conn.Read(data)
	if len(data) == sizeBytes && count == sizeBytes && binary.BigEndian.Uint32(data) > c.cuts.limit {
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return count, err
}

func (c *cutConn) Write(data []byte) (int, error) {
	if c.cuts.next.CompareAndSwap(true, false) {
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(data)
}

func answer(result any, err error) {
	line := map[string]any{"result": result}
	if err != nil {
		line = map[string]any{"error": err.Error()}
	}
	text, err := json.Marshal(line)
	fail(err)
	fmt.Println(string(text))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
