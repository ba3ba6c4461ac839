import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiVersionsResponseData;
import org.apache.kafka.common.message.ApiVersionsResponseData.ApiVersion;
import org.apache.kafka.common.message.ApiVersionsResponseData.FinalizedFeatureKey;
import org.apache.kafka.common.message.ApiVersionsResponseData.SupportedFeatureKey;
import org.apache.kafka.common.message.ApiVersionsResponseDataJsonConverter;
import org.apache.kafka.common.message.CreateTopicsResponseData;
import org.apache.kafka.common.message.CreateTopicsResponseData.CreatableTopicConfigs;
import org.apache.kafka.common.message.CreateTopicsResponseData.CreatableTopicResult;
import org.apache.kafka.common.message.CreateTopicsResponseDataJsonConverter;
import org.apache.kafka.common.message.InitProducerIdResponseData;
import org.apache.kafka.common.message.InitProducerIdResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.SendBuilder;
import org.apache.kafka.common.requests.ApiVersionsRequest;
import org.apache.kafka.common.requests.ResponseHeader;

/** Responses as a broker's own classes write them, and their content in the generated JSON form. */
final class ResponseCases {
    static final Uuid TOPIC_ID = new Uuid(0x0123456789abcdefL, 0xfedcba9876543210L);

    private final ArrayNode cases = JsonNodeFactory.instance.arrayNode();

    static ArrayNode all() {
        ResponseCases all = new ResponseCases();
        ProduceResponses.addTo(all);
        MetadataResponses.addTo(all);
        all.addApiVersions();
        all.addApiVersionsThatAreTooNew();
        all.addInitProducerId();
        all.addCreateTopics();
        TransactionResponses.addTo(all);
        ReadResponses.addTo(all);
        ClusterResponses.addTo(all);
        TelemetryMessages.addResponsesTo(all);
        SaslMessages.addResponsesTo(all);
        return all.cases;
    }

    void add(String name, ApiKeys api, short version, ApiMessage data, JsonNode body) {
        add(name, api, version, version, data, body);
    }

    /** askedVersion: of the request that this answers, which decides on the response's header. */
    private void add(
            String name, ApiKeys api, short askedVersion, short version, ApiMessage data, JsonNode body) {
        ResponseHeader header = new ResponseHeader(0, api.responseHeaderVersion(askedVersion));
        ObjectNode node = cases.addObject();
        node.put("name", api.name + " v" + askedVersion + ": " + name);
        node.put("api", api.name).put("version", askedVersion).set("body", body);
        byte[] frame = Frames.bytes(SendBuilder.buildResponseSend(header, data, version));
        Frames.put(node, "frame", frame, true);
    }

    private void addApiVersions() {
        for (short version : Versions.of(ApiKeys.API_VERSIONS)) {
            ApiVersionsResponseData data = new ApiVersionsResponseData().setThrottleTimeMs(version > 0 ? 17 : 0);
            for (ApiKeys api : ApiKeys.values()) {
                data.apiKeys().add(new ApiVersion().setApiKey(api.id)
                    .setMinVersion(api.oldestVersion()).setMaxVersion(api.latestVersion()));
            }
            addApiVersions("every API", version, data);
            addApiVersions("an error", version, new ApiVersionsResponseData().setErrorCode(Errors.INVALID_REQUEST.code()));
            if (version >= 3) {
                addFeatures(version, data.duplicate());
            }
        }
    }

    private void addFeatures(short version, ApiVersionsResponseData data) {
        for (String name : List.of("metadata.version", "transaction.version", "größe")) {
            data.supportedFeatures().add(
                new SupportedFeatureKey().setName(name).setMinVersion((short) 1).setMaxVersion((short) 29));
            data.finalizedFeatures().add(
                new FinalizedFeatureKey().setName(name).setMinVersionLevel((short) 2).setMaxVersionLevel((short) 27));
        }
        data.setFinalizedFeaturesEpoch(1L << 40).setZkMigrationReady(true);
        addApiVersions("features", version, data);
    }

    private void addApiVersions(String name, short version, ApiVersionsResponseData data) {
        add(name, ApiKeys.API_VERSIONS, version, data, ApiVersionsResponseDataJsonConverter.write(data, version));
    }

    /** An old broker answers a version that it does not know in version 0 (KIP-511). */
    private void addApiVersionsThatAreTooNew() {
        short asked = ApiKeys.API_VERSIONS.latestVersion(false);
        ApiVersionsRequest request = new ApiVersionsRequest.Builder().build(asked);
        ApiVersionsResponseData data =
            request.getErrorResponse(0, new UnsupportedVersionException("too new")).data();
        add("unsupported version", ApiKeys.API_VERSIONS, asked, (short) 0, data,
            ApiVersionsResponseDataJsonConverter.write(data, (short) 0));
    }

    private void addInitProducerId() {
        for (short version : Versions.of(ApiKeys.INIT_PRODUCER_ID)) {
            addInitProducerId("an id", version, new InitProducerIdResponseData()
                .setProducerId(Long.MAX_VALUE).setProducerEpoch(Short.MAX_VALUE).setThrottleTimeMs(99));
            addInitProducerId("first id", version, new InitProducerIdResponseData()
                .setProducerId(0).setProducerEpoch((short) 0));
            addInitProducerId("an error", version, new InitProducerIdResponseData()
                .setErrorCode(Errors.COORDINATOR_LOAD_IN_PROGRESS.code()).setProducerEpoch((short) -1));
        }
    }

    private void addInitProducerId(String name, short version, InitProducerIdResponseData data) {
        add(name, ApiKeys.INIT_PRODUCER_ID, version, data,
            InitProducerIdResponseDataJsonConverter.write(data, version));
    }

    private void addCreateTopics() {
        for (short version : Versions.of(ApiKeys.CREATE_TOPICS)) {
            CreateTopicsResponseData data = new CreateTopicsResponseData().setThrottleTimeMs(3);
            data.topics().add(new CreatableTopicResult().setName("numbers").setTopicId(TOPIC_ID)
                .setNumPartitions(12).setReplicationFactor((short) 3).setConfigs(List.of(
                    config("retention.ms", "-1"), config("cleanup.policy", null).setIsSensitive(true))));
            data.topics().add(new CreatableTopicResult().setName("exists")
                .setErrorCode(Errors.TOPIC_ALREADY_EXISTS.code()).setErrorMessage("Topic 'exists' already exists."));
            data.topics().add(new CreatableTopicResult().setName("secret").setErrorMessage(null).setConfigs(null)
                .setTopicConfigErrorCode(Errors.TOPIC_AUTHORIZATION_FAILED.code()));
            add("three topics", ApiKeys.CREATE_TOPICS, version, data,
                CreateTopicsResponseDataJsonConverter.write(data, version));
        }
    }

    private static CreatableTopicConfigs config(String name, String value) {
        return new CreatableTopicConfigs().setName(name).setValue(value).setReadOnly(true)
            .setConfigSource((byte) 5);
    }
}
