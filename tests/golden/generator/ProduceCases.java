import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceRequestData.PartitionProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceDataCollection;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.RequestHeader;

/** Whole produce requests, from the size to the last record, in every version. */
final class ProduceCases {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
    private static final Batches.Producer SOME = Batches.Producer.of(1_234_567_890_123L, 5, 0);
    private static final Uuid FIRST_ID = new Uuid(0x0123456789abcdefL, 0xfedcba9876543210L);
    private static final Uuid SECOND_ID = new Uuid(-2L, Long.MIN_VALUE);

    private final ArrayNode cases = JSON.arrayNode();

    /** Rows for one partition. */
    private record Part(int index, Rows rows) { }

    /** A topic as the request names it. */
    private record Topic(String name, Uuid id, int partitionsCount, List<Part> parts) { }

    /** What is equal in all versions of a case. */
    private record Settings(int acks, int timeoutMs, String clientId, Batches.Producer producer) { }

    static ArrayNode all() {
        ProduceCases all = new ProduceCases();
        for (short version : Versions.of(ApiKeys.PRODUCE)) {
            all.addAcks(version);
            all.addTopics(version);
            all.addLengths(version);
        }
        return all.cases;
    }

    private void addAcks(short version) {
        List<Topic> one = List.of(new Topic("flights", FIRST_ID, 1,
            List.of(new Part(0, Rows.of(Rows.row(Blob.text("k"), Blob.text("v")))))));
        add("acks all, idempotent", version, new Settings(-1, 30_000, "pykafka-sink", SOME), one);
        Batches.Producer none = Batches.Producer.NONE;
        add("acks all", version, new Settings(-1, 1, "", none), one);
        add("acks 1", version, new Settings(1, 12_345, "größe", none), one);
        add("acks 0", version, new Settings(0, Integer.MAX_VALUE, "c".repeat(200), none), one);
    }

    private void addTopics(short version) {
        Rows rows = Rows.of(Rows.row(Blob.text("key"), Blob.text("value")),
            Rows.row(Rows.NOON - 1, null, null, new Rows.Entry("h", Blob.text("1"))));
        List<Topic> topics = List.of(
            new Topic("first", FIRST_ID, 12, List.of(new Part(0, rows), new Part(3, rows), new Part(11, rows))),
            new Topic("second.topic_with-all_kinds", SECOND_ID, 2, List.of(new Part(1, rows))));
        add("several topics and partitions", version, new Settings(-1, 30_000, "c", SOME), topics);
        add("several topics without idempotence", version,
            new Settings(1, 30_000, "c", Batches.Producer.NONE), topics);
    }

    /** Lengths at which the compact forms need another byte. */
    private void addLengths(short version) {
        Settings settings = new Settings(-1, 30_000, "c", SOME);
        for (int length : new int[] {50, 60, 16_320, 20_000}) {
            Rows rows = Rows.of(Rows.row(null, Blob.repeat('v', length)));
            add("value of " + length + " bytes", version, settings,
                List.of(new Topic("t", FIRST_ID, 1, List.of(new Part(0, rows)))));
        }
        for (int length : new int[] {126, 127, 128, 249}) {
            add("topic name of " + length + " letters", version, settings,
                List.of(new Topic("t".repeat(length), FIRST_ID, 1, List.of(new Part(0, Rows.at(5))))));
        }
        if (version == 8 || version == 9 || version == 13) {
            List<Part> many = IntStream.range(0, 130).mapToObj(i -> new Part(i, Rows.at(i))).toList();
            add("130 partitions", version, settings, List.of(new Topic("t", FIRST_ID, 130, many)));
        }
    }

    private void add(String name, short version, Settings settings, List<Topic> topics) {
        int correlationId = 1000 + cases.size();
        ProduceRequestData data = new ProduceRequestData().setTransactionalId(null)
            .setAcks((short) settings.acks).setTimeoutMs(settings.timeoutMs)
            .setTopicData(topicData(settings, topics));
        ProduceRequest request = ProduceRequest.builder(data).build(version);
        RequestHeader header =
            new RequestHeader(ApiKeys.PRODUCE, version, settings.clientId, correlationId);
        ObjectNode node = cases.addObject().put("name", name + ", v" + version);
        node.put("version", version).put("correlation_id", correlationId);
        node.put("client_id", settings.clientId).put("acks", settings.acks);
        node.put("timeout_ms", settings.timeoutMs);
        settings.producer.putInto(node);
        ArrayNode list = node.putArray("topics");
        topics.forEach(topic -> list.add(json(topic)));
        Frames.put(node, "frame", Frames.bytes(request.toSend(header)), false);
    }

    private static TopicProduceDataCollection topicData(Settings settings, List<Topic> topics) {
        TopicProduceDataCollection collection = new TopicProduceDataCollection();
        for (Topic topic : topics) {
            List<PartitionProduceData> parts = new ArrayList<>();
            for (Part part : topic.parts) {
                parts.add(new PartitionProduceData().setIndex(part.index)
                    .setRecords(Batches.build(Compression.NONE, settings.producer, part.rows)));
            }
            // As the Java Sender: it sets both, and the version decides which one is written.
            collection.add(new TopicProduceData().setName(topic.name).setTopicId(topic.id)
                .setPartitionData(parts));
        }
        return collection;
    }

    private static ObjectNode json(Topic topic) {
        ObjectNode node = JSON.objectNode().put("name", topic.name).put("id", topic.id.toString());
        node.put("partitions_count", topic.partitionsCount);
        ArrayNode parts = node.putArray("partitions");
        for (Part part : topic.parts) {
            parts.addObject().put("index", part.index).set("rows", part.rows.json());
        }
        return node;
    }
}
