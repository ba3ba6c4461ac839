import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's producer, told what to do by lines: "send TOPIC PARTITION TIMESTAMP VALUE…" (in Base64),
 * "flush" and "metrics". Each is answered with "done", after the metrics: "GROUP NAME TAGS VALUE".
 */
public class Producing {
    public static void main(String[] settings) throws Exception {
        Properties properties = new Properties();
        for (String setting : settings) {
            String[] parts = setting.split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        ByteArraySerializer bytes = new ByteArraySerializer();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ");
                if (words[0].equals("send")) {
                    int partition = Integer.parseInt(words[2]);
                    long timestamp = Long.parseLong(words[3]);
                    for (int i = 4; i < words.length; i++) {
                        byte[] value = Base64.getDecoder().decode(words[i]);
                        sent.add(producer.send(
                            new ProducerRecord<>(words[1], partition, timestamp, null, value)));
                    }
                } else if (words[0].equals("flush")) {
                    producer.flush();
                    for (Future<RecordMetadata> future : sent) {
                        future.get();
                    }
                    sent.clear();
                } else {
                    tell(producer.metrics(), out);
                }
                out.println("done");
            }
        }
    }

    private static void tell(Map<MetricName, ? extends Metric> metrics, PrintStream out) {
        for (Map.Entry<MetricName, ? extends Metric> entry : metrics.entrySet()) {
            MetricName name = entry.getKey();
            Object value = entry.getValue().metricValue();
            String topic = name.tags().getOrDefault("topic", "-");
            String node = name.tags().getOrDefault("node-id", "-");
            if (value instanceof Number) {
                out.println(String.join(" ", name.group(), name.name(), topic, node, value.toString()));
            }
        }
    }
}
