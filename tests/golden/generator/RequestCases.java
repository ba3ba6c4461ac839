import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiVersionsRequestData;
import org.apache.kafka.common.message.ApiVersionsRequestDataJsonConverter;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableReplicaAssignment;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableReplicaAssignmentCollection;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopic;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopicCollection;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopicConfig;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopicConfigCollection;
import org.apache.kafka.common.message.CreateTopicsRequestDataJsonConverter;
import org.apache.kafka.common.message.InitProducerIdRequestData;
import org.apache.kafka.common.message.InitProducerIdRequestDataJsonConverter;
import org.apache.kafka.common.message.MetadataRequestData;
import org.apache.kafka.common.message.MetadataRequestDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.ApiVersionsRequest;
import org.apache.kafka.common.requests.CreateTopicsRequest;
import org.apache.kafka.common.requests.InitProducerIdRequest;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.RequestHeader;

/** All other requests, each with its header, in every version. */
final class RequestCases {
    private static final List<String> CLIENT_IDS =
        List.of("pykafka-sink", "", "größe-日本", "c".repeat(127), "c".repeat(300));
    private static final Uuid TOPIC_ID = new Uuid(0x0123456789abcdefL, 0xfedcba9876543210L);

    private final ArrayNode cases = JsonNodeFactory.instance.arrayNode();

    static ArrayNode all() {
        RequestCases all = new RequestCases();
        all.addHeaders();
        all.addApiVersions();
        all.addMetadata();
        all.addMetadataOfMany();
        all.addMetadataById();
        all.addInitProducerId();
        all.addCreateTopics();
        TransactionRequests.addTo(all);
        ReadRequests.addTo(all);
        ClusterRequests.addTo(all);
        TelemetryMessages.addRequestsTo(all);
        SaslMessages.addRequestsTo(all);
        return all.cases;
    }

    void add(String name, AbstractRequest request, JsonNode body) {
        add(name, request, body, CLIENT_IDS.get(0), cases.size());
    }

    private void add(
            String name, AbstractRequest request, JsonNode body, String clientId, int correlationId) {
        ApiKeys api = request.apiKey();
        RequestHeader header = new RequestHeader(api, request.version(), clientId, correlationId);
        ObjectNode node = cases.addObject();
        node.put("name", api.name + " v" + request.version() + ": " + name);
        node.put("api", api.name).put("version", request.version());
        node.put("correlation_id", correlationId).put("client_id", clientId).set("body", body);
        Frames.put(node, "frame", Frames.bytes(request.toSend(header)), false);
    }

    private void addHeaders() {
        for (short version : new short[] {1, 2}) {
            InitProducerIdRequestData data =
                new InitProducerIdRequestData().setTransactionalId(null).setTransactionTimeoutMs(1);
            AbstractRequest request = new InitProducerIdRequest.Builder(data).build(version);
            JsonNode body = InitProducerIdRequestDataJsonConverter.write(data, version);
            for (String clientId : CLIENT_IDS) {
                int length = clientId.length();
                add("client id of " + length + " letters", request, body, clientId, Integer.MAX_VALUE);
            }
            for (int correlationId : new int[] {0, 1, 255, 65_536, Integer.MAX_VALUE}) {
                add("correlation id " + correlationId, request, body, "c", correlationId);
            }
        }
    }

    private void addApiVersions() {
        for (short version : Versions.of(ApiKeys.API_VERSIONS)) {
            for (String software : List.of("pykafka-sink", "a", "x".repeat(200))) {
                addApiVersions("software name of " + software.length() + " letters", version, software, null, -1);
            }
            // From version 5 on: older ones have no fields for the broker that is meant (KIP-1242).
            if (version >= 5) {
                addApiVersions("of a broker", version, "pykafka-sink", "5L6g3nShT-eMCtK--X86sw", 7);
                addApiVersions("of a cluster with a long id", version, "a", "x".repeat(200), 0);
            }
        }
    }

    private void addApiVersions(String name, short version, String software, String clusterId, int nodeId) {
        ApiVersionsRequestData data = new ApiVersionsRequestData()
            .setClientSoftwareName(software).setClientSoftwareVersion("0.1.0")
            .setClusterId(clusterId).setNodeId(nodeId);
        add(name, new ApiVersionsRequest.Builder(data, version, version).build(version),
            ApiVersionsRequestDataJsonConverter.write(data, version));
    }

    private void addMetadata() {
        for (short version : Versions.from(ApiKeys.METADATA, 1)) {
            for (List<String> topics : Arrays.asList(
                    null, List.<String>of(), List.of("flights"), List.of("a", "b.c", "t".repeat(249)))) {
                String what = topics == null ? "all topics" : topics.size() + " topics";
                // Before version 4 brokers always create topics; the Java client refuses to ask otherwise.
                for (boolean mayCreate : version < 4 ? new boolean[] {true} : new boolean[] {true, false}) {
                    MetadataRequest request = new MetadataRequest.Builder(topics, mayCreate).build(version);
                    add(what + (mayCreate ? ", may create" : ""), request,
                        MetadataRequestDataJsonConverter.write(request.data(), version));
                }
            }
        }
    }

    /** Array lengths at which the compact form needs another byte. */
    private void addMetadataOfMany() {
        for (short version : new short[] {8, 9, 13}) {
            for (int count : new int[] {126, 127, 128}) {
                List<String> topics = IntStream.range(0, count).mapToObj(i -> "t" + i).toList();
                MetadataRequest request = new MetadataRequest.Builder(topics, true).build(version);
                add(count + " topics", request,
                    MetadataRequestDataJsonConverter.write(request.data(), version));
            }
        }
    }

    private void addMetadataById() {
        for (short version : Versions.from(ApiKeys.METADATA, 12)) {
            MetadataRequestData data = new MetadataRequestData().setAllowAutoTopicCreation(false)
                .setIncludeTopicAuthorizedOperations(true)
                .setTopics(MetadataRequest.convertTopicIdsToMetadataRequestTopic(List.of(TOPIC_ID)));
            add("by topic id, with operations", new MetadataRequest.Builder(data).build(version),
                MetadataRequestDataJsonConverter.write(data, version));
        }
    }

    private void addInitProducerId() {
        for (short version : Versions.of(ApiKeys.INIT_PRODUCER_ID)) {
            InitProducerIdRequestData idempotent = new InitProducerIdRequestData()
                .setTransactionalId(null).setTransactionTimeoutMs(Integer.MAX_VALUE);
            add("idempotent", new InitProducerIdRequest.Builder(idempotent).build(version),
                InitProducerIdRequestDataJsonConverter.write(idempotent, version));
            InitProducerIdRequestData transactional = new InitProducerIdRequestData()
                .setTransactionalId("transaktion-1").setTransactionTimeoutMs(60_000);
            if (version >= 3) {
                transactional.setProducerId(Long.MAX_VALUE).setProducerEpoch((short) 77);
            }
            add("transactional", new InitProducerIdRequest.Builder(transactional).build(version),
                InitProducerIdRequestDataJsonConverter.write(transactional, version));
        }
    }

    private void addCreateTopics() {
        for (short version : Versions.of(ApiKeys.CREATE_TOPICS)) {
            CreatableTopicConfigCollection configs = new CreatableTopicConfigCollection();
            configs.add(new CreatableTopicConfig().setName("retention.ms").setValue("-1"));
            configs.add(new CreatableTopicConfig().setName("cleanup.policy").setValue(null));
            CreatableReplicaAssignmentCollection assignments = new CreatableReplicaAssignmentCollection();
            assignments.add(new CreatableReplicaAssignment().setPartitionIndex(0).setBrokerIds(List.of(1, 2)));
            assignments.add(new CreatableReplicaAssignment().setPartitionIndex(1).setBrokerIds(List.of(2)));
            CreatableTopicCollection topics = new CreatableTopicCollection();
            topics.add(topic("numbers", 12, 3).setConfigs(configs));
            topics.add(topic("assigned", -1, -1).setAssignments(assignments));
            if (version >= 4) {
                topics.add(topic("defaults", -1, -1));
            }
            for (boolean validateOnly : new boolean[] {true, false}) {
                CreateTopicsRequestData data = new CreateTopicsRequestData().setTopics(topics)
                    .setTimeoutMs(12_345).setValidateOnly(validateOnly);
                add(validateOnly ? "validate" : "create", new CreateTopicsRequest.Builder(data).build(version),
                    CreateTopicsRequestDataJsonConverter.write(data, version));
            }
        }
    }

    private static CreatableTopic topic(String name, int partitions, int replicas) {
        return new CreatableTopic().setName(name).setNumPartitions(partitions)
            .setReplicationFactor((short) replicas);
    }
}
