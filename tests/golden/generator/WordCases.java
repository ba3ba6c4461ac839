import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Locale;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/** Which words the Java producer's options take that are one of a few: in capitals, too, or not. */
final class WordCases {
    private static final List<String> OPTIONS = List.of(
        "acks", "client.dns.lookup", "compression.type", "metadata.recovery.strategy",
        "sasl.oauthbearer.assertion.algorithm", "security.protocol");
    private static final List<String> WORDS = List.of(
        "all", "-1", "0", "1", "use_all_dns_ips", "resolve_canonical_bootstrap_servers_only",
        "none", "gzip", "snappy", "lz4", "zstd", "rebootstrap", "rs256", "es256",
        "plaintext", "ssl", "sasl_plaintext", "sasl_ssl");

    private WordCases() { }

    static ArrayNode all() {
        ArrayNode cases = JsonNodeFactory.instance.arrayNode();
        for (String option : OPTIONS) {
            ConfigDef.ConfigKey key = ProducerConfig.configDef().configKeys().get(option);
            ObjectNode taken = cases.addObject().put("name", option).putObject("taken");
            for (String word : WORDS) {
                String capitals = word.toUpperCase(Locale.ROOT);
                for (String text : new String[] {word, capitals, capitals.charAt(0) + word.substring(1)}) {
                    taken.put(text, isTaken(key, text));
                }
            }
        }
        return cases;
    }

    private static boolean isTaken(ConfigDef.ConfigKey key, String text) {
        try {
            key.validator.ensureValid(key.name, ConfigDef.parseType(key.name, text, key.type));
            return true;
        } catch (ConfigException refused) {
            return false;
        }
    }
}
