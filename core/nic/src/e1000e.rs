// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel's Gigabit Ethernet controllers of the 82574 (82574 GbE Controller Family Datasheet, to which sections refer).
//!
//! ```text
//! begin: reset → settle: the NVM is loaded → registers → offer, send, flush, arm → interrupted …
//! ```
//!
//! Descriptors are legacy ones: all that is needed of a packet, its length and whether it is whole, is in one word, and the address stays.
//!
//! A reset takes a millisecond, in which the card is not to be accessed, and that is waited for: less than an event may take. Loading the NVM takes
//! many, so events go on meanwhile ([`Card::settle`]). What was offered and sent until then lies in the rings.

mod registers;
mod ring;

use turnstile_virtio::driver::pci::{self, Function};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::violation::Violation;

use crate::card::{Bus, Card, Failure, HEADROOM};
use registers as reg;
use ring::{Returned, Ring, Slot};

/// Vendor and device of a function, in the first word of its configuration space: 82574L, 82574LA.
const DEVICES: [u32; 2] = [0x10d3_8086, 0x10f6_8086];
/// The BAR of the registers.
const BAR: u8 = 0;
/// What is read where no device answers any more.
const GONE: u32 = u32::MAX;

/// How long a card that resets is let alone, in nanoseconds (section 10.2.2.1).
const RESET: u64 = 1_000_000;
/// How often it is looked at then: each read takes a microsecond or a few.
const RESET_READS: u32 = 200;
/// How often it is looked at until its accesses to memory have to have ended.
const MASTER_READS: u32 = 100;
/// How long loading the NVM may take, and how often it is looked at, in nanoseconds.
const LOAD: u64 = 50_000_000;
const LOAD_PAUSE: u64 = 1_000_000;

/// How many bytes of a packet the card may write, at most: 1522 with its CRC, should that not be cut off.
const WRITTEN: u32 = 1522;
/// The longest packet that is sent: with a VLAN tag, without its CRC.
const LONGEST: u32 = 1518;
/// The shortest one that the card makes longer itself. Others are sent from a copy with zeros behind it.
const SHORTEST: usize = 17;
/// How far such copies are apart.
const COPY: u64 = 32;
/// Bytes of each ring, and of all copies.
const PAGE: u64 = 4096;

/// Where the driver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Without a card.
    Gone,
    /// The card loads its NVM, until this time at most.
    Loads(u64),
    /// It sends and receives.
    Runs,
}

/// Which causes interrupt when a packet was received, and when one was sent.
#[derive(Clone, Copy, Debug)]
struct Causes {
    received: u32,
    sent: u32,
}

/// By the pin.
const PIN: Causes = Causes { received: reg::CAUSE_RXT0, sent: reg::CAUSE_TXDW };
/// By messages.
const MESSAGES: Causes = Causes { received: reg::CAUSE_RXQ0, sent: reg::CAUSE_TXQ0 };

/// A network card with up to `N - 1` buffers each way.
#[derive(Debug)]
pub struct E1000e<const N: usize> {
    state: State,
    mac: Option<[u8; 6]>,
    receive: Ring<N>,
    send: Ring<N>,
    /// Where copies of short packets are.
    copies: u64,
    by_messages: bool,
    /// The causes that interrupt. After a message, `fired`, the card may have forgotten some.
    armed: u32,
    fired: bool,
    /// The last buffer did not have the end of its packet.
    is_cut: bool,
}

fn get<B: Bus>(bus: &B, register: u64) -> u32 {
    bus.function().read(BAR, register, 4)
}

fn set<B: Bus>(bus: &B, register: u64, value: u32) {
    bus.function().write(BAR, register, 4, value);
}

/// Says whether a function is such a card, by the first word of its configuration space.
pub(crate) fn drives(id: u32) -> bool {
    DEVICES.contains(&id)
}

/// Says whether this is a card that has all registers.
fn find<B: Bus>(bus: &B) -> Result<(), Failure> {
    if !drives(bus.function().configuration(0, 4)) {
        return Err(Failure::Unknown);
    }
    match bus.function().length(BAR) >= reg::LENGTH {
        true => Ok(()),
        false => Err(Failure::Registers),
    }
}

/// Has the card reset itself. What it has begun in memory has ended before, unless it is broken (section 10.2.2.1).
fn order_reset<B: Bus>(bus: &B) {
    set(bus, reg::IMC, u32::MAX);
    set(bus, reg::RCTL, 0);
    set(bus, reg::TCTL, 0);
    set(bus, reg::CTRL, reg::CTRL_MASTER_DISABLE);
    let _ = (0..MASTER_READS).any(|_| get(bus, reg::STATUS) & reg::STATUS_MASTER_ENABLE == 0);
    set(bus, reg::CTRL, reg::CTRL_MASTER_DISABLE | reg::CTRL_RST);
}

/// Tells the card of a ring. Fails if it does not take it.
fn set_up<B: Bus, const N: usize>(bus: &B, registers: u64, ring: &Ring<N>) -> Result<(), Failure> {
    set(bus, registers + reg::BASE_LOW, ring.at() as u32);
    set(bus, registers + reg::BASE_HIGH, (ring.at() >> 32) as u32);
    set(bus, registers + reg::BYTES, Ring::<N>::BYTES);
    set(bus, registers + reg::HEAD, 0);
    set(bus, registers + reg::TAIL, 0);
    set(bus, registers + reg::DELAY, 0);
    set(bus, registers + reg::DELAY_ALL, 0);
    let said = [reg::BASE_LOW, reg::BASE_HIGH, reg::BYTES].map(|at| get(bus, registers + at));
    match said == [ring.at() as u32, (ring.at() >> 32) as u32, Ring::<N>::BYTES] {
        true => Ok(()),
        false => Err(pci::Failure::Queue(u16::from(registers == reg::SEND)).into()),
    }
}

/// Reads the card's address.
fn address<B: Bus>(bus: &B) -> Option<[u8; 6]> {
    let [low, high] = [reg::RAL, reg::RAH].map(|register| get(bus, register));
    let [a, b, c, d] = low.to_le_bytes();
    let [e, f, ..] = high.to_le_bytes();
    (high & reg::RAH_AV != 0).then_some([a, b, c, d, e, f])
}

impl<const N: usize> E1000e<N> {
    /// Sets everything up, after a reset.
    fn start<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        set(bus, reg::IMC, u32::MAX);
        let own = reg::CTRL_MASTER_DISABLE
            | reg::CTRL_FRCSPD
            | reg::CTRL_FRCDPLX
            | reg::CTRL_RFCE
            | reg::CTRL_TFCE
            | reg::CTRL_VME;
        set(bus, reg::CTRL, get(bus, reg::CTRL) & !own | reg::CTRL_SLU);
        set(bus, reg::GCR, get(bus, reg::GCR) | reg::GCR_COMPLETIONS);
        set(bus, reg::GCR2, get(bus, reg::GCR2) | reg::GCR2_COMPLETIONS);
        self.mac = address(bus);
        self.set_interrupts(bus);
        set_up(bus, reg::RECEIVE, &self.receive)?;
        set_up(bus, reg::SEND, &self.send)?;
        set(bus, reg::RECEIVE + reg::CONTROL, reg::RXDCTL_EACH);
        set(bus, reg::SEND + reg::CONTROL, reg::TXDCTL_EACH);
        set(bus, reg::RXCSUM, 0);
        set(bus, reg::RFCTL, 0);
        set(bus, reg::TIPG, reg::TIPG_COPPER);
        let sends = reg::TCTL_EN | reg::TCTL_PSP | reg::TCTL_COLLISIONS | reg::TCTL_MULR;
        set(bus, reg::TCTL, sends);
        // VMs have addresses of their own.
        let receives = reg::RCTL_EN | reg::RCTL_UPE | reg::RCTL_MPE | reg::RCTL_BAM | reg::RCTL_SECRC;
        set(bus, reg::RCTL, receives);
        self.state = State::Runs;
        self.check(bus)
    }

    /// Says by which interrupts causes come, all of them at once. None does yet.
    fn set_interrupts<B: Bus>(&mut self, bus: &B) {
        (self.armed, self.fired) = (0, false);
        let mut extended = get(bus, reg::CTRL_EXT) | reg::CTRL_EXT_DRV_LOAD;
        set(bus, reg::ITR, 0);
        if self.by_messages {
            set(bus, reg::EITR, 0);
            set(bus, reg::IVAR, reg::IVAR_QUEUES);
            set(bus, reg::EIAC, MESSAGES.received | MESSAGES.sent);
            extended |= reg::CTRL_EXT_PBA;
        }
        set(bus, reg::CTRL_EXT, extended);
    }

    /// The card cannot be used: what is half set up is not to go on.
    fn give_up<B: Bus>(&mut self, bus: &B) {
        self.state = State::Gone;
        order_reset(bus);
    }

    const fn causes(&self) -> Causes {
        if self.by_messages { MESSAGES } else { PIN }
    }

    /// Has those causes interrupt that are wanted, and no others.
    fn want<B: Bus>(&mut self, bus: &B, wanted: u32) {
        let unwanted = self.armed & !wanted;
        if unwanted != 0 {
            set(bus, reg::IMC, unwanted);
        }
        if self.fired || wanted & !self.armed != 0 {
            set(bus, reg::IMS, wanted);
            // A cause that the card has found before this is seen in memory behind it.
            let _ = get(bus, reg::STATUS);
        }
        (self.armed, self.fired) = (wanted, false);
    }
}

impl<const N: usize> Card for E1000e<N> {
    const BYTES: u64 = 3 * PAGE;
    const NEW: Self = Self {
        state: State::Gone,
        mac: None,
        receive: Ring::NEW,
        send: Ring::NEW,
        copies: 0,
        by_messages: false,
        armed: 0,
        fired: false,
        is_cut: false,
    };

    fn reset<B: Bus>(bus: &B) -> Result<(), Failure> {
        find(bus)?;
        order_reset(bus);
        let begin = bus.time();
        while bus.time().wrapping_sub(begin) < RESET {}
        match (0..RESET_READS).any(|_| get(bus, reg::CTRL) & reg::CTRL_RST == 0) {
            true => Ok(()),
            false => Err(pci::Failure::Reset.into()),
        }
    }

    fn begin<B: Bus>(&mut self, bus: &B, at: u64) -> Result<(), Failure> {
        (self.state, self.mac, self.is_cut) = (State::Gone, None, false);
        Self::reset(bus)?;
        if !at.is_multiple_of(PAGE) || !bus.memory().contains(at, Self::BYTES) {
            return Err(Failure::Memory);
        }
        self.by_messages = pci::sends_messages(bus.function());
        self.receive.begin(bus.memory(), at)?;
        self.send.begin(bus.memory(), at + PAGE)?;
        self.copies = at + 2 * PAGE;
        self.state = State::Loads(bus.time().saturating_add(LOAD));
        self.settle(bus).map(drop)
    }

    fn settle<B: Bus>(&mut self, bus: &B) -> Result<Option<u64>, Failure> {
        let State::Loads(until) = self.state else { return Ok(None) };
        let eecd = get(bus, reg::EECD);
        if eecd & reg::EECD_AUTO_RD != 0 && eecd != GONE {
            return self.start(bus).map(|()| None).inspect_err(|_| self.give_up(bus));
        }
        let now = bus.time();
        if now >= until || eecd == GONE {
            self.give_up(bus);
            return Err(pci::Failure::Reset.into());
        }
        Ok(Some(now.saturating_add(LOAD_PAUSE)))
    }

    fn mac(&self) -> Option<[u8; 6]> {
        self.mac
    }

    fn room_to_receive(&self) -> u16 {
        self.receive.room()
    }

    fn offer<B: Bus>(&mut self, bus: &B, number: u16, address: u64, length: u32) -> Result<(), Failure> {
        // The card thinks that it has 2048 bytes, but writes no more than these.
        let bytes = length.checked_sub(HEADROOM).filter(|bytes| *bytes >= WRITTEN);
        let bytes = bytes.and_then(|bytes| u16::try_from(bytes).ok());
        let packet = address.checked_add(HEADROOM.into());
        let (Some(bytes), Some(packet)) = (bytes, packet) else { return Err(Failure::Memory) };
        if self.receive.room() == 0 {
            return Err(Failure::Memory);
        }
        Ok(self.receive.add(bus.memory(), Slot { number, bytes }, [packet, 0])?)
    }

    #[inline] // Of each packet.
    fn receive<B: Bus>(&mut self, bus: &B) -> Result<Option<(u16, u32)>, Failure> {
        let Some(Returned { slot, length, status }) = self.receive.take(bus.memory())? else {
            return Ok(None);
        };
        if length > slot.bytes {
            return Err(Violation::UsedLength(length.into()).into());
        }
        let ends = status & reg::END != 0;
        let is_rest = core::mem::replace(&mut self.is_cut, !ends);
        let is_whole = ends && !is_rest && status & reg::ERRORS == 0;
        Ok(Some((slot.number, if is_whole { HEADROOM + u32::from(length) } else { 0 })))
    }

    fn room_to_send(&self) -> u16 {
        self.send.room()
    }

    fn send<B: Bus>(&mut self, bus: &B, number: u16, address: u64, length: u32) -> Result<(), Failure> {
        let length = length.checked_sub(HEADROOM).filter(|length| *length <= LONGEST);
        let packet = address.checked_add(HEADROOM.into());
        let (Some(length), Some(mut packet)) = (length, packet) else { return Err(Failure::Memory) };
        if self.send.room() == 0 {
            return Err(Failure::Memory);
        }
        let mut copy = [0; SHORTEST];
        let mut bytes = length as u16;
        if let Some(short) = copy.get_mut(..usize::from(bytes)).filter(|short| short.len() < SHORTEST) {
            bus.memory().read(packet, short)?;
            packet = self.copies + u64::from(self.send.tail()) * COPY;
            bus.memory().write(packet, &copy)?;
            bytes = SHORTEST as u16;
        }
        let command = reg::COMMAND_EOP | reg::COMMAND_IFCS | reg::COMMAND_RS;
        let words = [packet, u64::from(bytes) | command];
        Ok(self.send.add(bus.memory(), Slot { number, bytes }, words)?)
    }

    fn sent<B: Bus>(&mut self, bus: &B) -> Result<Option<u16>, Failure> {
        Ok(self.send.take(bus.memory())?.map(|returned| returned.slot.number))
    }

    fn flush<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        match self.state {
            State::Gone => return Err(Failure::Unknown),
            State::Loads(_) => return Ok(()),
            State::Runs => {}
        }
        if let Some(tail) = self.send.news() {
            set(bus, reg::SEND + reg::TAIL, tail.into());
        }
        if let Some(tail) = self.receive.news() {
            set(bus, reg::RECEIVE + reg::TAIL, tail.into());
        }
        Ok(())
    }

    fn arm<B: Bus>(&mut self, bus: &B, sent: bool) -> Result<bool, Failure> {
        match self.state {
            State::Gone => return Err(Failure::Unknown),
            State::Loads(_) => return Ok(false),
            State::Runs => {}
        }
        let causes = self.causes();
        self.want(bus, causes.received | if sent { causes.sent } else { 0 });
        Ok(self.receive.has_returned(bus.memory())? || sent && self.send.has_returned(bus.memory())?)
    }

    fn interrupted<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        match self.state {
            State::Gone => Err(Failure::Unknown),
            // The pin is low behind the read. A message has cleared its cause.
            _ if !self.by_messages && get(bus, reg::ICR) == GONE => Err(pci::Failure::Broken.into()),
            _ => {
                self.fired |= self.by_messages;
                Ok(())
            }
        }
    }

    fn check<B: Bus>(&self, bus: &B) -> Result<(), Failure> {
        match self.state {
            State::Gone => return Err(Failure::Unknown),
            State::Loads(_) => return Ok(()),
            State::Runs => {}
        }
        let controls = [(reg::RCTL, reg::RCTL_EN), (reg::TCTL, reg::TCTL_EN)];
        let goes_on = |(register, enabled)| {
            let value = get(bus, register);
            value & enabled != 0 && value != GONE
        };
        if !controls.into_iter().all(goes_on) {
            return Err(pci::Failure::Broken.into());
        }
        for ring in [reg::RECEIVE, reg::SEND] {
            let head = get(bus, ring + reg::HEAD);
            if head as usize >= N {
                return Err(Violation::UsedJump { next: 0, found: head as u16 }.into());
            }
        }
        Ok(())
    }

    fn stop<B: Bus>(&mut self, bus: &B) {
        if self.state != State::Gone {
            self.state = State::Gone;
            // One that does not end its reset is trusted to let this memory alone, or it is at least the caller's own.
            let _ = Self::reset(bus);
        }
    }
}
