// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whichever card there is: its driver is chosen by vendor and device of its configuration space.

use turnstile_virtio::driver::pci::Function;

use crate::card::{Bus, Card, Failure};
use crate::e1000e::E1000e;
use crate::virtio::Virtio;

/// Which driver a card has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Virtio,
    E1000e,
}

/// A card with up to `N` buffers each way. All drivers are there, so that no choice moves one.
#[derive(Debug)]
pub struct Any<const N: usize> {
    kind: Option<Kind>,
    virtio: Virtio<N>,
    e1000e: E1000e<N>,
}

/// Finds the driver of a card.
fn find<B: Bus>(bus: &B) -> Result<Kind, Failure> {
    match bus.function().configuration(0, 4) {
        id if crate::virtio::drives(id) => Ok(Kind::Virtio),
        id if crate::e1000e::drives(id) => Ok(Kind::E1000e),
        _ => Err(Failure::Unknown),
    }
}

/// Asks the driver that the card has, or returns what is said without one.
macro_rules! ask {
    ($card:expr, $without:expr, $method:ident($($argument:expr),*)) => {
        match $card.kind {
            Some(Kind::Virtio) => $card.virtio.$method($($argument),*),
            Some(Kind::E1000e) => $card.e1000e.$method($($argument),*),
            None => $without,
        }
    };
}

impl<const N: usize> Card for Any<N> {
    const BYTES: u64 = {
        let (virtio, e1000e) = (Virtio::<N>::BYTES, E1000e::<N>::BYTES);
        if virtio > e1000e { virtio } else { e1000e }
    };
    const NEW: Self = Self { kind: None, virtio: Virtio::NEW, e1000e: E1000e::NEW };

    fn reset<B: Bus>(bus: &B) -> Result<(), Failure> {
        match find(bus)? {
            Kind::Virtio => Virtio::<N>::reset(bus),
            Kind::E1000e => E1000e::<N>::reset(bus),
        }
    }

    fn begin<B: Bus>(&mut self, bus: &B, at: u64) -> Result<(), Failure> {
        self.kind = None;
        self.kind = Some(find(bus)?);
        ask!(self, Err(Failure::Unknown), begin(bus, at)).inspect_err(|_| self.kind = None)
    }

    fn settle<B: Bus>(&mut self, bus: &B) -> Result<Option<u64>, Failure> {
        ask!(self, Err(Failure::Unknown), settle(bus))
    }

    fn mac(&self) -> Option<[u8; 6]> {
        ask!(self, None, mac())
    }

    fn room_to_receive(&self) -> u16 {
        ask!(self, 0, room_to_receive())
    }

    fn offer<B: Bus>(&mut self, bus: &B, number: u16, address: u64, length: u32) -> Result<(), Failure> {
        ask!(self, Err(Failure::Unknown), offer(bus, number, address, length))
    }

    #[inline] // Of each packet.
    fn receive<B: Bus>(&mut self, bus: &B) -> Result<Option<(u16, u32)>, Failure> {
        ask!(self, Err(Failure::Unknown), receive(bus))
    }

    fn room_to_send(&self) -> u16 {
        ask!(self, 0, room_to_send())
    }

    fn send<B: Bus>(&mut self, bus: &B, number: u16, address: u64, length: u32) -> Result<(), Failure> {
        ask!(self, Err(Failure::Unknown), send(bus, number, address, length))
    }

    fn sent<B: Bus>(&mut self, bus: &B) -> Result<Option<u16>, Failure> {
        ask!(self, Err(Failure::Unknown), sent(bus))
    }

    fn flush<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        ask!(self, Err(Failure::Unknown), flush(bus))
    }

    fn arm<B: Bus>(&mut self, bus: &B, sent: bool) -> Result<bool, Failure> {
        ask!(self, Err(Failure::Unknown), arm(bus, sent))
    }

    fn interrupted<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        ask!(self, Err(Failure::Unknown), interrupted(bus))
    }

    fn check<B: Bus>(&self, bus: &B) -> Result<(), Failure> {
        ask!(self, Err(Failure::Unknown), check(bus))
    }

    fn stop<B: Bus>(&mut self, bus: &B) {
        ask!(self, (), stop(bus));
        self.kind = None;
    }
}
