//! What a socket is just now, for those who look and do not wait for news: poll(2) and its like.

use crate::Stack;
use crate::event::Ready;
use crate::socket::SocketId;
use crate::tcp::State;
use crate::tcp::table::Place;

impl Stack {
    /// Whether reading and writing would do something at once, be it that they fail. What a socket is not, an
    /// [`Event`](crate::event::Event) tells when it becomes it.
    ///
    /// One that found no room to write is writable again when half of it is free. A socket that was closed is nothing.
    pub fn readiness(&mut self, id: SocketId) -> Ready {
        if let Some(socket) = self.sockets.get_mut(id) {
            let error = socket.error.is_some();
            let room = !socket.blocked && socket.unsent <= socket.send_most / 2;
            // It is to be told of room.
            socket.blocked |= !room;
            return Ready {
                readable: error || socket.receive.front().is_some(),
                writable: error || room,
                error,
                urgent: false,
            };
        }
        let Some(place) = self.tcp.index(id).and_then(|index| self.tcp.place_mut(index)) else {
            return Ready::default();
        };
        match place {
            Place::Free | Place::Idle(_) => Ready::default(),
            Place::Listener(listener) => Ready { readable: !listener.queue.is_empty(), ..Ready::default() },
            Place::Connection(entry) => {
                let c = &entry.connection;
                let open = !matches!(c.state(), State::SynSent | State::SynReceived);
                // What is over, or was finished, fails at once.
                let room = !c.is_writable() || !entry.blocked && c.room() > 0;
                entry.blocked |= open && !room;
                Ready {
                    readable: c.unread() > 0 || c.is_at_end() || c.has_failed(),
                    writable: open && room,
                    error: c.has_failed(),
                    urgent: c.has_urgent(),
                }
            }
        }
    }
}
