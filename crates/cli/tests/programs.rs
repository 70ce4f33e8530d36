//! Real programs, unmodified, each with its data checked: both sides under Bypath (and then at least 95 % of
//! the bytes must have gone through the ring), only the server, only the client.
//!
//! A program that is not installed is skipped by name: see `support::skip`.

#[path = "programs/support/mod.rs"]
mod support;

#[path = "programs/curl.rs"]
mod curl;
#[path = "programs/git.rs"]
mod git;
#[path = "programs/iperf3.rs"]
mod iperf3;
#[path = "programs/memcached.rs"]
mod memcached;
#[path = "programs/netcat.rs"]
mod netcat;
#[path = "programs/node.rs"]
mod node;
#[path = "programs/redis.rs"]
mod redis;
#[path = "programs/rsync.rs"]
mod rsync;
#[path = "programs/socat.rs"]
mod socat;
#[path = "programs/sockperf.rs"]
mod sockperf;
#[path = "programs/ssh.rs"]
mod ssh;
#[path = "programs/stunnel.rs"]
mod stunnel;
#[path = "programs/vsftpd.rs"]
mod vsftpd;

#[path = "programs/datagrams.rs"]
mod datagrams;

#[path = "programs/haproxy.rs"]
mod haproxy;
#[path = "programs/java.rs"]
mod java;
#[path = "programs/mariadb.rs"]
mod mariadb;
#[path = "programs/nginx.rs"]
mod nginx;
#[path = "programs/nginx_load.rs"]
mod nginx_load;
#[path = "programs/openssl.rs"]
mod openssl;
#[path = "programs/perl.rs"]
mod perl;
#[path = "programs/postgres.rs"]
mod postgres;
#[path = "programs/prefork.rs"]
mod prefork;
#[path = "programs/processes.rs"]
mod processes;
#[path = "programs/python.rs"]
mod python;

#[path = "programs/busybox.rs"]
mod busybox;
#[path = "programs/go.rs"]
mod go;
#[path = "programs/shell.rs"]
mod shell;
#[path = "programs/traced.rs"]
mod traced;
