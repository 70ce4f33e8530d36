//! Halves of a stream: one reads, one writes.

use super::TcpStream;
use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use std::fmt;
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The half of a [`TcpStream`] that reads, borrowed from it: see [`split`](TcpStream::split).
#[derive(Debug)]
pub struct ReadHalf<'a> {
    half: TcpStream,
    of: PhantomData<&'a mut TcpStream>,
}

/// The half of a [`TcpStream`] that writes, borrowed from it: see [`split`](TcpStream::split).
#[derive(Debug)]
pub struct WriteHalf<'a> {
    half: TcpStream,
    of: PhantomData<&'a mut TcpStream>,
}

/// The half of a [`TcpStream`] that reads: see [`into_split`](TcpStream::into_split).
#[derive(Debug)]
pub struct OwnedReadHalf {
    half: TcpStream,
}

/// The half of a [`TcpStream`] that writes: see [`into_split`](TcpStream::into_split). Dropping it finishes writing.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    half: Option<TcpStream>,
}

/// The two are halves of different streams.
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Debug for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReuniteError").field(&self.0).field(&self.1).finish()
    }
}

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two are halves of different streams")
    }
}

impl std::error::Error for ReuniteError {}

/// The same stream, with places for tasks of its own.
fn again(stream: &TcpStream) -> TcpStream {
    TcpStream::from(stream.stream.again())
}

pub fn borrowed(stream: &mut TcpStream) -> (ReadHalf<'_>, WriteHalf<'_>) {
    let of = PhantomData;
    (ReadHalf { half: again(stream), of }, WriteHalf { half: again(stream), of })
}

pub fn owned(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    (OwnedReadHalf { half: again(&stream) }, OwnedWriteHalf { half: Some(stream) })
}

impl OwnedReadHalf {
    /// The stream again.
    ///
    /// # Errors
    /// [`ReuniteError`], with both of them.
    pub fn reunite(self, mut other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        match other.half.take() {
            Some(half) if Arc::ptr_eq(&self.half.stream.socket, &half.stream.socket) => Ok(half),
            half => Err(ReuniteError(self, OwnedWriteHalf { half })),
        }
    }
}

impl OwnedWriteHalf {
    /// The stream again: see [`OwnedReadHalf::reunite`].
    ///
    /// # Errors
    /// [`ReuniteError`], with both of them.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        other.reunite(self)
    }

    /// Drops it without finishing: what remains is the half that reads.
    pub fn forget(mut self) {
        self.half = None;
    }

    const fn half(&self) -> &TcpStream {
        self.half.as_ref().expect("it is taken by what takes the half")
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if let Some(half) = &self.half {
            // It is over, then, and nothing is left to be finished.
            let _ = half.stream.shutdown(Shutdown::Write);
        }
    }
}

/// What both halves of a kind have in common.
macro_rules! half {
    ($half:ty, $own:ident => $stream:expr) => {
        impl AsRef<TcpStream> for $half {
            /// The stream, for what it wants and how it does.
            fn as_ref(&self) -> &TcpStream {
                let $own = self;
                $stream
            }
        }

        impl $half {
            /// Whom the stream is connected with.
            ///
            /// # Errors
            /// The host has ended.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.as_ref().peer_addr()
            }

            /// The stream's own end.
            ///
            /// # Errors
            /// The host has ended.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.as_ref().local_addr()
            }
        }
    };
}
half!(ReadHalf<'_>, own => &own.half);
half!(WriteHalf<'_>, own => &own.half);
half!(OwnedReadHalf, own => &own.half);
half!(OwnedWriteHalf, own => own.half());

macro_rules! reads {
    ($half:ty) => {
        impl AsyncRead for $half {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                room: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.get_mut().half).poll_read(context, room)
            }
        }
    };
}
reads!(ReadHalf<'_>);
reads!(OwnedReadHalf);

macro_rules! writes {
    ($half:ty, $own:ident => $stream:expr) => {
        impl AsyncWrite for $half {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                octets: &[u8],
            ) -> Poll<io::Result<usize>> {
                let $own = self.get_mut();
                Pin::new($stream).poll_write(context, octets)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                pieces: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let $own = self.get_mut();
                Pin::new($stream).poll_write_vectored(context, pieces)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $own = self.get_mut();
                Pin::new($stream).poll_shutdown(context)
            }
        }
    };
}
writes!(WriteHalf<'_>, own => &mut own.half);
writes!(OwnedWriteHalf, own => own.half.as_mut().expect("it is taken by what takes the half"));
