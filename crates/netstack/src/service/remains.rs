//! What is still known of sockets whose end the service has closed, while programs may yet have theirs: a bounded number for each user.

use super::options::Wishes;
use bypath_shm::service::Address;
use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::{Options, Settings};
use std::collections::{HashMap, VecDeque};

/// Of one user.
const MOST: usize = 1024;

/// Of one socket.
#[derive(Clone, Debug)]
pub struct Remains {
    pub uid: u32,
    pub v6: bool,
    pub local: Address,
    pub remote: Address,
    /// What the next call is to say; 0: nothing.
    pub errno: i32,
    pub wishes: Wishes,
    /// What was set on a socket whose connection never came up, or is over: who connects again does so with another one, which gets it.
    pub said: Option<(Options, Settings)>,
    /// TCP_INFO; nothing: there never was a connection.
    pub info: Vec<u8>,
}

impl Remains {
    /// What the stack had of it is among what is kept, which is asked for of few.
    pub fn keep_options(&mut self) {
        if let Some((options, settings)) = self.said.take() {
            keep_options(&mut self.wishes, self.v6, &options, &settings);
        }
    }
}

fn keep_options(wishes: &mut Wishes, v6: bool, options: &Options, settings: &Settings) {
    use libc::{IPPROTO_IP as IP, IPPROTO_IPV6 as V6, IPPROTO_TCP as TCP, SOL_SOCKET as SOL};
    let algorithm = match settings.algorithm {
        Algorithm::Reno => b"reno".to_vec(),
        Algorithm::Cubic => b"cubic".to_vec(),
    };
    let (device, (send, receive), keepalive) = (wishes.device.clone(), wishes.buffers, wishes.keepalive);
    let mut keep = |level, name, value: i32| wishes.keep((level, name), value.to_ne_bytes().to_vec());
    keep(SOL, libc::SO_REUSEADDR, options.reuse_address.into());
    keep(SOL, libc::SO_REUSEPORT, options.reuse_port.into());
    for (name, half) in
        [(libc::SO_SNDBUF, send), (libc::SO_RCVBUF, receive)].into_iter().filter(|(_, half)| *half > 0)
    {
        keep(SOL, name, 2 * half as i32);
    }
    keep(TCP, libc::TCP_NODELAY, settings.nodelay.into());
    keep(TCP, libc::TCP_CORK, settings.cork.into());
    keep(TCP, libc::TCP_KEEPIDLE, keepalive.idle as i32);
    keep(TCP, libc::TCP_KEEPINTVL, keepalive.interval as i32);
    keep(TCP, libc::TCP_KEEPCNT, keepalive.probes as i32);
    keep(TCP, libc::TCP_USER_TIMEOUT, settings.user_timeout.map_or(0, |timeout| timeout.as_millis() as i32));
    let (class, hops) = (options.class.0.into(), options.hop_limit.unwrap_or(64).into());
    if v6 {
        keep(V6, libc::IPV6_V6ONLY, options.only_v6.into());
        keep(V6, libc::IPV6_TCLASS, class);
        keep(V6, libc::IPV6_UNICAST_HOPS, hops);
    } else {
        keep(IP, libc::IP_TOS, class);
        keep(IP, libc::IP_TTL, hops);
    }
    if wishes.maxseg > 0 {
        let maxseg = i32::from(wishes.maxseg);
        wishes.keep((TCP, libc::TCP_MAXSEG), maxseg.to_ne_bytes().to_vec());
    }
    let linger = [i32::from(options.linger.is_some()).to_ne_bytes(), wishes.linger.to_ne_bytes()].concat();
    wishes.keep((SOL, libc::SO_LINGER), linger);
    wishes.keep((SOL, libc::SO_BINDTODEVICE), device);
    wishes.keep((TCP, libc::TCP_CONGESTION), algorithm);
}

#[derive(Debug, Default)]
pub struct Graves {
    all: HashMap<u64, Remains>,
    order: HashMap<u32, VecDeque<u64>>,
}

impl Graves {
    pub fn add(&mut self, cookie: u64, remains: Remains) {
        let order = self.order.entry(remains.uid).or_default();
        if order.len() >= MOST
            && let Some(oldest) = order.pop_front()
        {
            self.all.remove(&oldest);
        }
        order.push_back(cookie);
        self.all.insert(cookie, remains);
    }

    /// Whether something is left of it.
    pub fn has(&self, cookie: u64) -> bool {
        self.all.contains_key(&cookie)
    }

    pub fn get_mut(&mut self, cookie: u64) -> Option<&mut Remains> {
        self.all.get_mut(&cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_a_user_makes_room_for_his_next() {
        let mut graves = Graves::default();
        let of = |uid| Remains {
            uid,
            v6: false,
            local: Address(None),
            remote: Address(None),
            errno: 0,
            wishes: Wishes::default(),
            said: None,
            info: Vec::new(),
        };
        graves.add(9_999, of(2));
        for cookie in 0..=MOST as u64 {
            graves.add(cookie, of(1));
        }
        assert!(
            graves.get_mut(0).is_none() && graves.get_mut(1).is_some() && graves.get_mut(9_999).is_some()
        );
        assert_eq!(graves.all.len(), MOST + 1);
    }
}
