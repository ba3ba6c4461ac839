import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.sasl.Sasl;
import javax.security.sasl.SaslClient;
import javax.security.sasl.SaslException;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerClientInitialResponse;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramMessages.ClientFinalMessage;
import org.apache.kafka.common.security.scram.internals.ScramMessages.ClientFirstMessage;
import org.apache.kafka.common.security.scram.internals.ScramMessages.ServerFinalMessage;
import org.apache.kafka.common.security.scram.internals.ScramMessages.ServerFirstMessage;

/** Whole conversations, by the classes that Kafka's client and broker have them from. */
final class SaslConversations {
    private static final String[][] USERS = {
        {"alice", "password"}, {"a=b,c", "Sp\"ec,=i\\al ü; #1"}, {"größe", "日本"}};
    private static final String NONCE = "fyko+d2lbbFgONRv9qkxdawL";
    private static final byte[] SALT = "salt of the user".getBytes(StandardCharsets.US_ASCII);
    private static final int ITERATIONS = 4096;

    private final ArrayNode cases = JsonNodeFactory.instance.arrayNode();

    static ArrayNode all() {
        SaslConversations all = new SaslConversations();
        try {
            for (String[] user : USERS) {
                all.addPlain(user[0], user[1]);
                for (ScramMechanism mechanism : ScramMechanism.values()) {
                    for (boolean isToken : new boolean[] {false, true}) {
                        all.addScram(mechanism, user[0], user[1], isToken);
                    }
                }
            }
            // One extension at most: Java has no order of several.
            all.addToken("no extension", Map.of());
            all.addToken("an extension", Map.of("logicalCluster", "lkc-1 a"));
        } catch (GeneralSecurityException | SaslException error) {
            throw new IllegalStateException(error);
        }
        return all.cases;
    }

    private ObjectNode add(String mechanism, String name) {
        return cases.addObject().put("name", mechanism + ": " + name).put("mechanism", mechanism);
    }

    /** The client of PLAIN is the JDK's. */
    private void addPlain(String user, String password) throws SaslException {
        SaslClient client = Sasl.createSaslClient(
            new String[] {"PLAIN"}, null, "kafka", "host", Map.of(), callbacks -> {
                for (Callback callback : callbacks) {
                    if (callback instanceof NameCallback) {
                        ((NameCallback) callback).setName(user);
                    } else {
                        ((PasswordCallback) callback).setPassword(password.toCharArray());
                    }
                }
            });
        ObjectNode node = add("PLAIN", user).put("user", user).put("password", password);
        node.put("client_first", Frames.hex(client.evaluateChallenge(new byte[0])));
    }

    private void addScram(ScramMechanism mechanism, String user, String password, boolean isToken)
            throws GeneralSecurityException {
        ScramFormatter formatter = new ScramFormatter(mechanism);
        byte[] salted = formatter.saltedPassword(password, SALT, ITERATIONS);
        Map<String, String> extensions = isToken ? Map.of("tokenauth", "true") : Map.of();
        ClientFirstMessage first =
            new ClientFirstMessage(ScramFormatter.saslName(user), NONCE, extensions);
        ServerFirstMessage serverFirst = new ServerFirstMessage(NONCE, "broker", SALT, ITERATIONS);
        ClientFinalMessage last = new ClientFinalMessage(
            "n,,".getBytes(StandardCharsets.US_ASCII), serverFirst.nonce());
        last.proof(formatter.clientProof(salted, first, serverFirst, last));
        byte[] serverKey = formatter.serverKey(salted);
        byte[] signature = formatter.serverSignature(serverKey, first, serverFirst, last);
        String name = user + (isToken ? ", a delegation token" : "");
        ObjectNode node = add(mechanism.mechanismName(), name).put("user", user).put("password", password);
        node.put("is_token", isToken).put("nonce", NONCE);
        node.put("client_first", Frames.hex(first.toBytes()));
        node.put("server_first", Frames.hex(serverFirst.toBytes()));
        node.put("client_final", Frames.hex(last.toBytes()));
        node.put("server_final", Frames.hex(new ServerFinalMessage(null, signature).toBytes()));
    }

    private void addToken(String name, Map<String, String> extensions) throws SaslException {
        String token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln-_~+/==";
        ObjectNode node = add("OAUTHBEARER", name).put("token", token);
        extensions.forEach(node.putObject("extensions")::put);
        node.put("client_first", Frames.hex(
            new OAuthBearerClientInitialResponse(token, new SaslExtensions(extensions)).toBytes()));
    }
}
