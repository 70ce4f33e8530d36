//! Small things between two stacks: round trips of one octet, and connections that are opened and closed.

use super::pair::{CLIENT, Cable, Pair, SERVER, now};
use super::{figure, timed};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath_stack::config::Config;
use bypath_sys::clock::monotonic_ns;

/// Round trips between two looks at the clock.
pub const TRIPS: u32 = 1000;
/// Connections between two looks at the clock.
pub const LIVES: u32 = 500;
/// Connections in TIME-WAIT at most: a quarter of the client's ports, the oldest making room.
pub const TIME_WAIT: usize = 4096;

/// Round trips of one octet on one connection.
pub struct PairPingpong;

impl Job for PairPingpong {
    fn title(&self) -> String {
        "pair-pingpong".into()
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        vec![figure("pair-pingpong", "mtu-1500", 1, None, "round_trip_ns")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let mut pair = Pair::new(Cable::ETHERNET, &Config::default())?;
        let ids = pair.open(now(), None)?;
        let mut stretch = || -> Result<f64, String> {
            let begun = monotonic_ns();
            for n in 0..TRIPS {
                pair.pass(now(), CLIENT, ids, n as u8)?;
                pair.pass(now(), SERVER, ids, !n as u8)?;
            }
            Ok((monotonic_ns() - begun) as f64 / f64::from(TRIPS))
        };
        stretch()?;
        let stretches = timed(context, stretch)?;
        let figures = self.figures(context).into_iter().map(|f| (f, Sample::Values(stretches.clone())));
        Ok(Outcome { figures: figures.collect(), note: None })
    }
}

/// Connections, one after the other.
pub struct PairChurn;

/// A connection: opened, one octet, the end of both sides. The client finishes first, and has the TIME-WAIT.
#[inline]
fn life(pair: &mut Pair, octet: u8) -> Result<(), String> {
    let now = now();
    let client = pair.connect(now, None)?;
    if pair.write(CLIENT, client, &[octet])? != 1 {
        return Err("no room for an octet".into());
    }
    pair.sides[CLIENT].stack.close(client);
    pair.carry(now, CLIENT)?;
    let server = pair.accept()?;
    let mut room = [0; 2];
    if pair.read(SERVER, server, &mut room)? != Some(1) || room[0] != octet {
        return Err("an octet did not come, or not as it was sent".into());
    }
    if pair.read(SERVER, server, &mut room)? != Some(0) {
        return Err("the end did not come".into());
    }
    pair.sides[SERVER].stack.close(server);
    pair.carry(now, SERVER)?;
    pair.carry(now, CLIENT)?;
    Ok(())
}

impl Job for PairChurn {
    fn title(&self) -> String {
        "pair-churn".into()
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        vec![figure("pair-churn", "mtu-1500", 1, None, "connections_per_s")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let mut config = Config::default();
        config.tcp.time_wait = TIME_WAIT;
        let mut pair = Pair::new(Cable::ETHERNET, &config)?;
        let mut stretch = || -> Result<f64, String> {
            let begun = monotonic_ns();
            for n in 0..LIVES {
                life(&mut pair, n as u8)?;
            }
            let elapsed = monotonic_ns() - begun;
            // Nothing is left of them but the client's TIME-WAIT; of the server, who listens.
            let left = [CLIENT, SERVER].map(|side| pair.sides[side].stack.usage());
            if [left[CLIENT].connections, left[SERVER].connections] != [0, 1] {
                return Err(format!("connections are left: {left:?}"));
            }
            if left[CLIENT].time_wait == 0 || left[CLIENT].time_wait > TIME_WAIT || left[SERVER].time_wait > 0
            {
                return Err(format!(
                    "in TIME-WAIT: {} and {}",
                    left[CLIENT].time_wait, left[SERVER].time_wait
                ));
            }
            Ok(f64::from(LIVES) * 1e9 / elapsed as f64)
        };
        // Until each connection takes the place of one in TIME-WAIT.
        for _ in 0..=TIME_WAIT as u32 / LIVES {
            stretch()?;
        }
        let stretches = timed(context, stretch)?;
        let figures = self.figures(context).into_iter().map(|f| (f, Sample::Values(stretches.clone())));
        Ok(Outcome { figures: figures.collect(), note: None })
    }
}
