import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.kafka.common.message.SaslAuthenticateRequestData;
import org.apache.kafka.common.message.SaslAuthenticateRequestDataJsonConverter;
import org.apache.kafka.common.message.SaslAuthenticateResponseData;
import org.apache.kafka.common.message.SaslAuthenticateResponseDataJsonConverter;
import org.apache.kafka.common.message.SaslHandshakeRequestData;
import org.apache.kafka.common.message.SaslHandshakeRequestDataJsonConverter;
import org.apache.kafka.common.message.SaslHandshakeResponseData;
import org.apache.kafka.common.message.SaslHandshakeResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.SaslAuthenticateRequest;
import org.apache.kafka.common.requests.SaslHandshakeRequest;

/** What a connection is authenticated with: requests of clients, answers of brokers. */
final class SaslMessages {
    /** 126 to 128: the compact form of a length needs another byte. 3,000: a long token. */
    private static final int[] LENGTHS = {0, 1, 126, 127, 128, 3_000};

    private SaslMessages() { }

    static void addRequestsTo(RequestCases cases) {
        for (short version : Versions.of(ApiKeys.SASL_HANDSHAKE)) {
            for (String mechanism : List.of(
                    "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "")) {
                SaslHandshakeRequestData data = new SaslHandshakeRequestData().setMechanism(mechanism);
                cases.add(mechanism.isEmpty() ? "nothing" : mechanism,
                    new SaslHandshakeRequest.Builder(data).build(version),
                    SaslHandshakeRequestDataJsonConverter.write(data, version));
            }
        }
        for (short version : Versions.of(ApiKeys.SASL_AUTHENTICATE)) {
            for (int length : LENGTHS) {
                SaslAuthenticateRequestData data =
                    new SaslAuthenticateRequestData().setAuthBytes(bytes(length));
                cases.add(length + " bytes", new SaslAuthenticateRequest.Builder(data).build(version),
                    SaslAuthenticateRequestDataJsonConverter.write(data, version));
            }
        }
    }

    static void addResponsesTo(ResponseCases cases) {
        for (short version : Versions.of(ApiKeys.SASL_HANDSHAKE)) {
            SaslHandshakeResponseData data = new SaslHandshakeResponseData();
            add(cases, "none is enabled", version, data.setErrorCode(Errors.ILLEGAL_SASL_STATE.code()));
            data.setMechanisms(List.of("SCRAM-SHA-512", "größe"));
            add(cases, "is enabled", version, data.setErrorCode(Errors.NONE.code()));
            add(cases, "another", version, data.setErrorCode(Errors.UNSUPPORTED_SASL_MECHANISM.code()));
        }
        for (short version : Versions.of(ApiKeys.SASL_AUTHENTICATE)) {
            for (int length : LENGTHS) {
                // The lifetime is ignorable: version 0 leaves it out.
                add(cases, length + " bytes", version,
                    new SaslAuthenticateResponseData().setAuthBytes(bytes(length)).setSessionLifetimeMs(1L << 40));
            }
            add(cases, "refused", version, new SaslAuthenticateResponseData()
                .setErrorCode(Errors.SASL_AUTHENTICATION_FAILED.code()).setErrorMessage("Paßwort"));
            add(cases, "refused without a word", version, new SaslAuthenticateResponseData()
                .setErrorCode(Errors.SASL_AUTHENTICATION_FAILED.code()).setErrorMessage(null));
        }
    }

    private static byte[] bytes(int length) {
        return "n,,\0\u0001=".repeat(length / 6 + 1).substring(0, length).getBytes(StandardCharsets.US_ASCII);
    }

    private static void add(ResponseCases cases, String name, short version, SaslHandshakeResponseData data) {
        JsonNode body = SaslHandshakeResponseDataJsonConverter.write(data, version);
        cases.add(name, ApiKeys.SASL_HANDSHAKE, version, data, body);
    }

    private static void add(ResponseCases cases, String name, short version, SaslAuthenticateResponseData data) {
        JsonNode body = SaslAuthenticateResponseDataJsonConverter.write(data, version);
        cases.add(name, ApiKeys.SASL_AUTHENTICATE, version, data, body);
    }
}
