/* What stands behind the calls of a scripted program at an end of a link: link.c and link_host.c. */
#ifndef LINK_H
#define LINK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

int __real_socket(int, int, int);
int __real_bind(int, const struct sockaddr *, socklen_t);
int __real_listen(int, int);
int __real_accept(int, struct sockaddr *, socklen_t *);
int __real_accept4(int, struct sockaddr *, socklen_t *, int);
int __real_connect(int, const struct sockaddr *, socklen_t);
ssize_t __real_read(int, void *, size_t);
ssize_t __real_readv(int, const struct iovec *, int);
ssize_t __real_recv(int, void *, size_t, int);
ssize_t __real_recvfrom(int, void *, size_t, int, struct sockaddr *, socklen_t *);
ssize_t __real_recvmsg(int, struct msghdr *, int);
ssize_t __real_write(int, const void *, size_t);
ssize_t __real_writev(int, const struct iovec *, int);
ssize_t __real_send(int, const void *, size_t, int);
ssize_t __real_sendto(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
ssize_t __real_sendmsg(int, const struct msghdr *, int);
int __real_fcntl(int, int, ...);
int __real_ioctl(int, unsigned long, ...);
int __real_sockatmark(int);
int __real_close(int);
int __real_dup(int);
int __real_dup2(int, int);
int __real_dup3(int, int, int);
int __real_shutdown(int, int);
int __real_getsockopt(int, int, int, void *, socklen_t *);
int __real_setsockopt(int, int, int, const void *, socklen_t);
int __real_getsockname(int, struct sockaddr *, socklen_t *);
int __real_getpeername(int, struct sockaddr *, socklen_t *);
int __real_poll(struct pollfd *, nfds_t, int);
int __real_ppoll(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
int __real_epoll_create(int);
int __real_epoll_create1(int);
int __real_epoll_ctl(int, int, int, struct epoll_event *);
int __real_epoll_wait(int, struct epoll_event *, int, int);
int __real_epoll_pwait(int, struct epoll_event *, int, int, const sigset_t *);
int __real_epoll_pwait2(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
int __real_pipe(int[2]);
ssize_t __real_splice(int, loff_t *, int, loff_t *, size_t, unsigned);
long __real_syscall(long, ...);
int __real_select(int, fd_set *, fd_set *, fd_set *, struct timeval *);
int __real_pselect(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *);
ssize_t __real_preadv2(int, const struct iovec *, int, off_t, int);
int __real_sendmmsg(int, struct mmsghdr *, unsigned, int);
int __real_recvmmsg(int, struct mmsghdr *, unsigned, int, struct timespec *);

/* Whether a descriptor is one of the plug-in's. */
int is_ours(int fd);
/* Whether so many octets are there; else EFAULT. */
int is_there(const void *p, size_t len);
/* A number that no script uses, in place of this one. */
int out_of_the_way(int fd);
/* Octets that buffers of connections are asked to have, if the kernel's own are too small for a script; else 0. */
extern int wide;
/* Whether the calls are the plug-in's. */
extern int is_stack;
/* A network namespace with a TUN device that is up; its descriptor. */
int become_host(int number);

#endif
