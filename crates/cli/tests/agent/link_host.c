/* The kernel's end of a link: a network namespace of this process alone, in a user namespace unless it may do without,
 * and a TUN device in it. */
#include "link.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* As in linux/ipv6.h, which does not go with netinet/in.h. */
struct address6 {
    struct in6_addr address;
    unsigned length;
    int interface;
};

static void fail(const char *what)
{
    dprintf(2, "link: %s: %s\n", what, strerrorname_np(errno));
    _exit(77);
}

int out_of_the_way(int fd)
{
    int moved = __real_fcntl(fd, F_DUPFD_CLOEXEC, 210);
    if (moved < 0)
        fail("a descriptor");
    __real_close(fd);
    return moved;
}

static void set(int fd, unsigned long request, struct ifreq *r, const char *what)
{
    if (__real_ioctl(fd, request, r) != 0)
        fail(what);
}

static void bring_up(int fd, const char *name)
{
    struct ifreq r = {0};
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
    set(fd, SIOCGIFFLAGS, &r, "flags of the device");
    r.ifr_flags |= IFF_UP | IFF_RUNNING;
    set(fd, SIOCSIFFLAGS, &r, "bring the device up");
}

static void set_address(int fd, unsigned long request, const char *name, const char *address)
{
    struct ifreq r = {0};
    struct sockaddr_in *a = (struct sockaddr_in *)&r.ifr_addr;
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
    a->sin_family = AF_INET;
    inet_pton(AF_INET, address, &a->sin_addr);
    set(fd, request, &r, "an address");
}

/* Until an address of IPv6 is there: for a moment it is tentative, and nothing reaches it (RFC 4862). */
static void await(const char *address)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};
    inet_pton(AF_INET6, address, &a.sin6_addr);
    for (int i = 0; i < 2000; i++) {
        int fd = __real_socket(AF_INET6, SOCK_DGRAM, 0);
        int bound = __real_bind(fd, (struct sockaddr *)&a, sizeof a);
        __real_close(fd);
        if (bound == 0)
            return;
        usleep(1000);
    }
    fail("an address of IPv6 that stays tentative");
}

int become_host(int number)
{
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    struct address6 six = {.length = 32};
    char name[16], address[32];
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        fail("no network namespace of its own");
    int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (tun < 0)
        fail("/dev/net/tun");
    snprintf(r.ifr_name, sizeof r.ifr_name, "link");
    set(tun, TUNSETIFF, &r, "a TUN device");
    int v4 = __real_socket(AF_INET, SOCK_DGRAM, 0), v6 = __real_socket(AF_INET6, SOCK_DGRAM, 0);
    bring_up(v4, "lo");
    for (int last = 1; last < 10; last++) {
        snprintf(name, sizeof name, last == 1 ? "link" : "link:%d", last);
        snprintf(address, sizeof address, "10.77.%d.%d", number, last);
        set_address(v4, SIOCSIFADDR, name, address);
        set_address(v4, SIOCSIFNETMASK, name, "255.255.0.0");
    }
    bring_up(v4, "link");
    snprintf(address, sizeof address, "fd77:0:%d::1", number);
    inet_pton(AF_INET6, address, &six.address);
    six.interface = (int)if_nametoindex("link");
    if (__real_ioctl(v6, SIOCSIFADDR, &six) != 0)
        fail("an address of IPv6");
    await(address);
    __real_close(v4);
    __real_close(v6);
    return out_of_the_way(tun);
}
