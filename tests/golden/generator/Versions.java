import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.kafka.common.protocol.ApiKeys;

/** The APIs that cases are written for, and the versions of them that the client speaks. */
final class Versions {
    static final List<ApiKeys> APIS = List.of(
        ApiKeys.PRODUCE, ApiKeys.METADATA, ApiKeys.API_VERSIONS, ApiKeys.CREATE_TOPICS,
        ApiKeys.INIT_PRODUCER_ID, ApiKeys.FIND_COORDINATOR, ApiKeys.ADD_PARTITIONS_TO_TXN,
        ApiKeys.END_TXN, ApiKeys.DESCRIBE_TRANSACTIONS, ApiKeys.LIST_TRANSACTIONS,
        ApiKeys.DESCRIBE_PRODUCERS, ApiKeys.DESCRIBE_CONFIGS, ApiKeys.LIST_OFFSETS, ApiKeys.FETCH,
        ApiKeys.DESCRIBE_CLIENT_QUOTAS, ApiKeys.DESCRIBE_QUORUM, ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKeys.PUSH_TELEMETRY, ApiKeys.SASL_HANDSHAKE, ApiKeys.SASL_AUTHENTICATE);

    private Versions() { }

    /** All stable versions. */
    static short[] of(ApiKeys api) {
        return from(api, api.oldestVersion());
    }

    static short[] from(ApiKeys api, int first) {
        return between(first, api.latestVersion(false));
    }

    static short[] between(int first, int last) {
        int[] versions = IntStream.rangeClosed(first, last).toArray();
        short[] shorts = new short[versions.length];
        for (int i = 0; i < versions.length; i++) {
            shorts[i] = (short) versions[i];
        }
        return shorts;
    }

    static ObjectNode json() {
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        for (ApiKeys api : APIS) {
            ObjectNode entry = node.putObject(api.name).put("api_key", api.id);
            entry.put("oldest", api.oldestVersion()).put("latest", api.latestVersion(false));
            // From this version on, requests have header version 2: tagged fields. Perhaps none has it yet.
            short flexible = api.oldestVersion();
            while (flexible <= api.latestVersion(false) && api.requestHeaderVersion(flexible) < 2) {
                flexible++;
            }
            entry.put("flexible_from", flexible);
        }
        return node;
    }
}
