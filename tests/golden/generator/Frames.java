import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.network.Send;
import org.apache.kafka.common.network.TransferableChannel;

/** What the client would write to its socket, as bytes, and bytes as JSON. */
final class Frames {
    /** Longer bytes are stated by size, beginning and digest: the files must stay readable. */
    private static final int LONGEST_IN_FULL = 4096;
    private static final int BEGINNING = 128;

    private Frames() { }

    static byte[] bytes(Send send) {
        Sink sink = new Sink();
        try {
            while (!send.completed()) {
                send.writeTo(sink);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return sink.out.toByteArray();
    }

    static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    static void put(ObjectNode node, String name, byte[] bytes, boolean inFull) {
        if (inFull || bytes.length <= LONGEST_IN_FULL) {
            node.put(name, hex(bytes));
            return;
        }
        ObjectNode digest = node.putObject(name).put("size", bytes.length);
        digest.put("begins", hex(Arrays.copyOf(bytes, BEGINNING))).put("sha256", sha256(bytes));
    }

    static String sha256(byte[] bytes) {
        try {
            return hex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Stands in for the socket's channel. */
    private static final class Sink implements TransferableChannel {
        private final ByteArrayOutputStream out = new ByteArrayOutputStream();

        @Override
        public int write(ByteBuffer source) {
            byte[] bytes = new byte[source.remaining()];
            source.get(bytes);
            out.writeBytes(bytes);
            return bytes.length;
        }

        @Override
        public long write(ByteBuffer[] sources) {
            return write(sources, 0, sources.length);
        }

        @Override
        public long write(ByteBuffer[] sources, int offset, int length) {
            long written = 0;
            for (int i = offset; i < offset + length; i++) {
                written += write(sources[i]);
            }
            return written;
        }

        @Override
        public boolean hasPendingWrites() {
            return false;
        }

        @Override
        public long transferFrom(FileChannel file, long position, long count) {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() { }
    }
}
