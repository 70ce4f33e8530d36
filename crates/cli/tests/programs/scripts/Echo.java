import java.io.DataInputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Random;

/** Echo server on NIO channels and a selector; client on blocking streams. */
public class Echo {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("server")) {
            serve();
        } else {
            check(Integer.parseInt(args[1]));
        }
    }

    static void serve() throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        System.out.println("port " + listener.socket().getLocalPort());
        while (true) {
            selector.select();
            Iterator<SelectionKey> ready = selector.selectedKeys().iterator();
            while (ready.hasNext()) {
                SelectionKey key = ready.next();
                ready.remove();
                if (key.isAcceptable()) {
                    SocketChannel client = listener.accept();
                    client.configureBlocking(false);
                    client.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(1 << 16));
                    continue;
                }
                SocketChannel client = (SocketChannel) key.channel();
                ByteBuffer buffer = (ByteBuffer) key.attachment();
                if (key.isReadable() && client.read(buffer) < 0) {
                    client.close();
                    continue;
                }
                buffer.flip();
                client.write(buffer);
                boolean all = !buffer.hasRemaining();
                buffer.compact();
                key.interestOps(all ? SelectionKey.OP_READ : SelectionKey.OP_WRITE);
            }
        }
    }

    static void check(int port) throws Exception {
        Random random = new Random(1);
        long payload = 0;
        try (Socket socket = new Socket(InetAddress.getByName("127.0.0.1"), port)) {
            socket.setTcpNoDelay(true);
            OutputStream out = socket.getOutputStream();
            DataInputStream in = new DataInputStream(socket.getInputStream());
            for (int i = 0; i < 5000; i++) {
                byte[] sent = new byte[1 + random.nextInt(i % 50 == 0 ? 200_000 : 3000)];
                random.nextBytes(sent);
                out.write(sent);
                byte[] got = new byte[sent.length];
                in.readFully(got);
                if (!Arrays.equals(sent, got)) {
                    throw new IllegalStateException("message " + i + " differs");
                }
                payload += 2L * sent.length;
            }
        }
        System.out.println("payload " + payload);
    }
}
