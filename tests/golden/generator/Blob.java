import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.NullNode;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;

/** Bytes together with the shortest rule that says in JSON which bytes they are. */
record Blob(byte[] bytes, JsonNode json) {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    static Blob text(String text) {
        return new Blob(text.getBytes(StandardCharsets.UTF_8), JSON.objectNode().put("text", text));
    }

    static Blob of(byte... bytes) {
        String hex = HexFormat.of().formatHex(bytes);
        return new Blob(bytes, JSON.objectNode().put("hex", hex));
    }

    static Blob repeat(char ascii, int times) {
        byte[] bytes = new byte[times];
        Arrays.fill(bytes, (byte) ascii);
        String repeat = String.valueOf(ascii);
        return new Blob(bytes, JSON.objectNode().put("repeat", repeat).put("times", times));
    }

    /** Bytes that no codec can make smaller: a linear congruential generator that is easily rewritten. */
    static Blob random(int seed, int length) {
        byte[] bytes = new byte[length];
        long state = seed;
        for (int i = 0; i < length; i++) {
            state = (state * 1103515245L + 12345L) & 0x7fffffffL;
            bytes[i] = (byte) (state >> 16);
        }
        return new Blob(bytes, JSON.objectNode().put("random", seed).put("length", length));
    }

    static byte[] bytesOf(Blob blob) {
        return blob == null ? null : blob.bytes;
    }

    static JsonNode jsonOf(Blob blob) {
        return blob == null ? NullNode.instance : blob.json;
    }
}
