//! Octets that fill no segment: what a program says of them beside its ring (TCP_CORK, TCP_NODELAY), done in the order in which it wrote.
//!
//! Whatever the word says, it costs its own connection at most a turn: it is looked at before each piece that is taken.

use super::neighbours::Neighbour;
use super::rings::Source;
use super::slab::Key;
use super::socket::{Hub, Phase, Socket};
use crate::Engine;
use bypath_shm::hold::Hold;
use bypath_stack::Tcp;
use bypath_stack::tcp::Settings;

/// What comes before the octets that are next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: so many of them, at most, can be taken.
    Octets(u64),
    /// What was taken before is sent first.
    Sent,
}

impl Socket {
    /// Does what the program says of octets that fill no segment, as far as it is about the next ones; `moved`: some were taken in this turn.
    pub(super) fn hold(
        &mut self,
        tcp: &mut Tcp<'_>,
        near: Option<&Neighbour>,
        source: Source,
        moved: bool,
    ) -> Next {
        let all = Next::Octets(u64::MAX);
        let (Some(rings), Some(near)) = (&mut self.rings, near) else { return all };
        let Some((before, now)) = rings.said(near) else { return all };
        let settings = tcp.settings();
        let wanted = wanted(settings, now);
        // What lets go, lets go of all that was written before: no octet has to be told from another.
        if !wanted.cork && wanted.nodelay >= settings.nodelay {
            set(tcp, settings, wanted, now.pushes);
            rings.heard(now);
            return all;
        }
        match source {
            // It was said behind these.
            Source::Drain(_) => all,
            Source::Ring { head, available } if (1..=available).contains(&now.distance(head.position())) => {
                Next::Octets(now.distance(head.position()))
            }
            _ => self.hold_from_here(tcp, (before, now), settings, moved),
        }
    }

    /// Nothing is left of what was written before the change.
    fn hold_from_here(
        &mut self,
        tcp: &mut Tcp<'_>,
        (before, now): (Hold, Hold),
        settings: Settings,
        moved: bool,
    ) -> Next {
        let Some(rings) = &mut self.rings else { return Next::Octets(u64::MAX) };
        // Between two changes that both hold was one that let go.
        let lets_go = now.pushes || now.changes.wrapping_sub(before.changes) > 1;
        let mut is_left = || moved || lets_go && tcp.statistics().is_some_and(|s| s.unsent > 0);
        if rings.sent_before != Some(now) && is_left() {
            if lets_go {
                tcp.push(Engine::now());
            }
            rings.sent_before = Some(now);
            return Next::Sent;
        }
        set(tcp, settings, wanted(settings, now), false);
        rings.heard(now);
        Next::Octets(u64::MAX)
    }
}

fn wanted(settings: Settings, said: Hold) -> Settings {
    Settings {
        cork: said.cork.unwrap_or(settings.cork),
        nodelay: said.nodelay.unwrap_or(settings.nodelay),
        ..settings
    }
}

fn set(tcp: &mut Tcp<'_>, before: Settings, wanted: Settings, pushes: bool) {
    if (wanted.cork, wanted.nodelay) != (before.cork, before.nodelay) {
        tcp.set_settings(Engine::now(), wanted);
    }
    if pushes {
        tcp.push(Engine::now());
    }
}

impl Hub {
    /// Before one of these options is set by a message: what was written before goes as it was to go. `is_read`: there is none of that in the
    /// pair.
    pub fn before_hold(&mut self, engine: &mut Engine, key: Key, holds: bool, is_read: bool) {
        self.settle_hold(engine, key);
        let Some(socket) = self.sockets.get_mut(key).filter(|socket| matches!(socket.phase, Phase::Open))
        else {
            return;
        };
        if !is_read && socket.rings.is_none() {
            socket.is.pair_in = true;
            self.work(engine, key);
        }
        let Some(id) = self.sockets.get(key).filter(|_| holds).map(|socket| socket.id) else { return };
        let left = engine.stack().tcp(id).and_then(|mut tcp| tcp.statistics());
        if left.is_some_and(|s| s.unsent > 0) {
            engine.flush_now();
        }
    }

    /// Before somebody asks about these options, or sets them by a question: what was said beside the ring is done.
    pub fn settle_hold(&mut self, engine: &mut Engine, key: Key) {
        let Some(socket) = self.sockets.get_mut(key).filter(|socket| socket.rings.is_some()) else { return };
        socket.is.pair_in = true;
        self.work(engine, key);
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
        let (Some(rings), Some(near)) = (&mut socket.rings, near) else { return };
        if let Some((_, now)) = near.watched(|| rings.said(near))
            && let Some(mut tcp) = engine.stack().tcp(socket.id)
        {
            let settings = tcp.settings();
            set(&mut tcp, settings, wanted(settings, now), now.pushes);
            rings.heard(now);
        }
    }
}
