# echo.pl server | echo.pl client PORT: lines through Perl's buffered IO, then blocks through sysread.
use strict;
use warnings;
use IO::Socket::INET;
$| = 1;

if ($ARGV[0] eq 'server') {
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5) or die "listen: $!";
    print 'port ', $listener->sockport, "\n";
    while (my $client = $listener->accept) {
        while (sysread($client, my $data, 65536)) {
            my $done = 0;
            while ($done < length $data) {
                $done += syswrite($client, $data, length($data) - $done, $done) // die "write: $!";
            }
        }
        close $client;
    }
    exit;
}

my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $ARGV[1]) or die "connect: $!";
my $payload = 0;
$socket->autoflush(1);
for my $i (1 .. 5000) {
    my $line = "line $i " . ('x' x ($i % 500)) . "\n";
    print $socket $line or die "print: $!";
    my $back = <$socket>;
    die "line $i came back as " . ($back // 'end of file') if !defined $back || $back ne $line;
    $payload += 2 * length $line;
}
for my $i (1 .. 400) {
    my $block = pack('N', $i) x (1000 + 37 * $i);
    print $socket $block or die "print: $!";
    read($socket, my $back, length $block) == length $block or die "short block $i";
    die "block $i differs" if $back ne $block;
    $payload += 2 * length $block;
}
shutdown($socket, 1);
die 'bytes after the end' if defined readline $socket;
print "payload $payload\n";
