import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsRequestData;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsRequestDataJsonConverter;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsResponseData;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsResponseDataJsonConverter;
import org.apache.kafka.common.message.PushTelemetryRequestData;
import org.apache.kafka.common.message.PushTelemetryRequestDataJsonConverter;
import org.apache.kafka.common.message.PushTelemetryResponseData;
import org.apache.kafka.common.message.PushTelemetryResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.GetTelemetrySubscriptionsRequest;
import org.apache.kafka.common.requests.PushTelemetryRequest;

/** What clients tell brokers of their metrics (KIP-714). */
final class TelemetryMessages {
    private static final Uuid INSTANCE = new Uuid(0x0123456789abcdefL, 0xfedcba9876543210L);

    private TelemetryMessages() { }

    static void addRequestsTo(RequestCases cases) {
        for (short version : Versions.of(ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS)) {
            for (Uuid instance : List.of(Uuid.ZERO_UUID, INSTANCE)) {
                GetTelemetrySubscriptionsRequestData data =
                    new GetTelemetrySubscriptionsRequestData().setClientInstanceId(instance);
                cases.add("of " + instance, new GetTelemetrySubscriptionsRequest(data, version),
                    GetTelemetrySubscriptionsRequestDataJsonConverter.write(data, version));
            }
        }
        for (short version : Versions.of(ApiKeys.PUSH_TELEMETRY)) {
            // Bytes: the generator's JSON of a buffer is of its array.
            for (boolean isTerminating : List.of(false, true)) {
                PushTelemetryRequestData data = new PushTelemetryRequestData().setClientInstanceId(INSTANCE)
                    .setSubscriptionId(-1234567).setTerminating(isTerminating).setCompressionType((byte) 4)
                    .setMetrics(java.nio.ByteBuffer.wrap(new byte[] {10, 0, -1, 127}));
                cases.add("terminating: " + isTerminating, new PushTelemetryRequest(data, version),
                    PushTelemetryRequestDataJsonConverter.write(data, version));
            }
        }
    }

    static void addResponsesTo(ResponseCases cases) {
        for (short version : Versions.of(ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS)) {
            GetTelemetrySubscriptionsResponseData data = new GetTelemetrySubscriptionsResponseData()
                .setThrottleTimeMs(7).setClientInstanceId(INSTANCE).setSubscriptionId(-1234567)
                .setAcceptedCompressionTypes(List.of((byte) 4, (byte) 3, (byte) 1, (byte) 2))
                .setPushIntervalMs(300_000).setTelemetryMaxBytes(1 << 20).setDeltaTemporality(true)
                .setRequestedMetrics(List.of("org.apache.kafka.producer.", "größe"));
            add(cases, "two prefixes", version, data);
            add(cases, "refused", version, new GetTelemetrySubscriptionsResponseData()
                .setErrorCode(Errors.THROTTLING_QUOTA_EXCEEDED.code()));
        }
        for (short version : Versions.of(ApiKeys.PUSH_TELEMETRY)) {
            PushTelemetryResponseData data = new PushTelemetryResponseData().setThrottleTimeMs(7)
                .setErrorCode(Errors.UNKNOWN_SUBSCRIPTION_ID.code());
            cases.add("another subscription", ApiKeys.PUSH_TELEMETRY, version, data,
                PushTelemetryResponseDataJsonConverter.write(data, version));
        }
    }

    private static void add(
            ResponseCases cases, String name, short version, GetTelemetrySubscriptionsResponseData data) {
        cases.add(name, ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS, version, data,
            GetTelemetrySubscriptionsResponseDataJsonConverter.write(data, version));
    }
}
