import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.utils.Utils;

/**
 * The bytes that Spark's JVM sink writes for a header's key: it makes a String of the bytes of a row
 * (UTF8String.toString is new String(bytes, UTF_8)), and Java's client writes that in UTF-8.
 */
final class TextCases {
    private static final int[] BYTES =
        {0x41, 0x80, 0x90, 0xa0, 0xc1, 0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0xff};
    private static final int LONGEST = 4;

    private final ArrayNode cases = JsonNodeFactory.instance.arrayNode();

    static ArrayNode all() {
        TextCases all = new TextCases();
        for (int first : BYTES) {
            String name = HexFormat.of().toHexDigits((byte) first);
            ObjectNode texts = all.cases.addObject().put("name", name).putObject("texts");
            put(texts, new byte[] {(byte) first});
        }
        return all.cases;
    }

    /** All texts that begin like this one. Behind two bytes, only those that may go on are told apart. */
    private static void put(ObjectNode texts, byte[] bytes) {
        String hex = HexFormat.of().formatHex(bytes);
        byte[] written = Utils.utf8(new String(bytes, StandardCharsets.UTF_8));
        texts.put(hex, HexFormat.of().formatHex(written));
        if (bytes.length == LONGEST) {
            return;
        }
        for (int next : BYTES) {
            boolean isContinuation = next == 0x41 || next >= 0x80 && next <= 0xbf;
            if (bytes.length == 1 || isContinuation && (bytes[0] & 0xff) >= 0xe0) {
                byte[] longer = Arrays.copyOf(bytes, bytes.length + 1);
                longer[bytes.length] = (byte) next;
                put(texts, longer);
            }
        }
    }
}
