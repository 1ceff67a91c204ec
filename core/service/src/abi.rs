// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events and calls, and the registers they are in.
//!
//! A service is entered at one address with its stack pointer at the top of its stack. An [`Event`] is in the first six argument
//! registers of the architecture's C ABI. All other general registers are zero, but for R12 on POWER, which has the address of the
//! entry, as its ABI wants it. A call is one instruction (`SVC #0`, `VMMCALL`, `sc 1`) with the call's number in the first of these
//! registers and its arguments in the next five; its result is in the first one, and all other registers are as before, but for
//! R0, R12, CTR and CR0 on POWER, and R13 as [`VECTORS`] says. [`Call::Done`] does not return: the next event enters at the top again. What a
//! service keeps, it keeps in its memory.
//!
//! A VM that a service serves is its *member*. Most services have one, number 0. One that has several, up to [`MEMBERS`], is a PCI
//! function of each. The member is in the upper bits of a device's number ([`member_device`]), and the queues of each have
//! [`MEMBER_QUEUES`] of the bits of a [`Kind::Doorbell`].

/// The number of registers of an event or a call.
pub const REGISTERS: usize = 6;

/// What a service is entered for, with its arguments in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// A guest reads a register: device, offset, size in bytes. The answer's value is what it reads.
    Read = 1,
    /// A guest writes a register: device, offset, size in bytes, value.
    Write = 2,
    /// Guests have rung: a bit for each queue; that of queue q of member m is m * [`MEMBER_QUEUES`] + q; and the time in nanoseconds.
    /// There is no answer but the levels of lines.
    Doorbell = 3,
    /// Characters were typed into a console, or its terminal has another size: device, how many (up to 8), the characters, the first in
    /// the lowest byte, how many were taken before them since the hypervisor began, and the size ([`terminal_size`]). The answer's value
    /// says how many the service has taken. A service with ports has the port's number in the place of the device, and no size. Without
    /// characters the port's other side has come, gone, or room again: [`Call::Send`] says which.
    Input = 4,
    /// The time of an alarm has come: the time in nanoseconds.
    Alarm = 5,
    /// A guest writes characters to a terminal by a call: device, how many (up to 16), and the characters in two words.
    TerminalWrite = 6,
    /// A guest reads characters from a terminal by a call: device. The answer's count says how many there are (up to 16), and its
    /// two words have them.
    TerminalRead = 7,
    /// A piece of a member's memory: its number, with the member as in a device's number, its guest physical address, its size in
    /// bytes, and where it is in the service's address space. Behind the pieces, with [`DISK`] as the number, perhaps with
    /// [`READ_ONLY`], the memory of its disk: its size in bytes, where it is in the service's address space, and the disk's name in
    /// two words, the first character in the lowest byte, zeros behind it. If that is what is written over an image, the same number with
    /// [`IMAGE`] comes behind it: the bytes of the image, where they are in the service's address space (nowhere, if there are none), the
    /// bytes of the disk, and the room for what is written, in bytes. This event, before all others of a member, and those with
    /// higher numbers are of its life, or of the machine's device; the others are of what it does.
    Memory = 8,
    /// The first event of a member but for [`Kind::Memory`], after its VM or the service was started, or because the service had
    /// crashed. Says whether what is kept of it is from before a crash (1), or of no use (0); to a PCI function, at which address
    /// firmware places its BARs (0: nowhere), and to a device behind MMIO, where it is (with [`MMIO`]); which member it is; and what the configuration says of it, in two words.
    Attach = 9,
    /// A member's VM has stopped: its memory is gone, and what is kept of it is of no use. The member.
    Detach = 10,
    /// A part of the machine's device that the service drives: which one (n: BAR n, [`DEVICE_CONFIGURATION`], [`DEVICE_MEMORY`]), its
    /// size in bytes, where it is in the service's address space, and at which address the device reaches it, if it does. These events come
    /// before all others whenever the service has begun anew; that of the memory comes last, and the device is to be reset then. It is as the life before, or
    /// firmware, has left it, but does not interrupt and reaches no memory. Behind it, with [`DEVICE_READY`] and what the configuration says
    /// of it in two words, comes that it does. If the answer's value is [`UNDRIVEN`] it does not.
    Device = 11,
    /// The device has interrupted: the time in nanoseconds. It does so again, if it still has a reason, when the event is handled, unless the
    /// answer's value is [`UNDRIVEN`].
    Interrupt = 12,
}

impl Kind {
    /// Returns the kind with this number.
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::Doorbell,
            4 => Self::Input,
            5 => Self::Alarm,
            6 => Self::TerminalWrite,
            7 => Self::TerminalRead,
            8 => Self::Memory,
            9 => Self::Attach,
            10 => Self::Detach,
            11 => Self::Device,
            12 => Self::Interrupt,
            _ => return None,
        })
    }
}

/// On POWER the number of a call without arguments, whose result is 0: the service has vector registers from now on, with zeros in them, until
/// its next call, which leaves R13 = 0. A program that sets R13 to another value knows by it whether it has them. On other architectures, and without this call, vector registers are closed to services.
pub const VECTORS: u64 = u64::MAX;

/// What a service asks of the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Call {
    /// The event is handled: value, the levels of the interrupt lines of its devices (bit n: device n; and [`ROOM`], [`AGAIN`], [`MESSAGE`]), how
    /// many characters the guest's console prints (up to 16), and those characters in two words. What a [`Kind::TerminalRead`] has read is in
    /// the same two words, and nothing is printed.
    Done = 0,
    /// Prints characters on the guest's console: how many (up to 16), two words. Returns how many the service has printed since the
    /// hypervisor began: by that a service which was killed knows how far it came.
    Print = 1,
    /// Writes characters to the hypervisor's own log: how many (up to 16), two words. A line ends with a newline.
    Log = 2,
    /// Sets the alarm to a time in nanoseconds, or off (`u64::MAX`). Returns the time now.
    Alarm = 3,
    /// The service cannot go on. It is reported and started anew.
    Panic = 4,
    /// Returns the time now, in nanoseconds.
    Time = 5,
    /// A PCI function sends a message-signalled interrupt: its address, its data, and the member. To the address of a device behind MMIO it is
    /// an edge of that device's line, whatever the data. Refused if nothing of the machine is there, or if the member's VM does not run.
    Message = 6,
    /// A PCI function decodes one of its BARs from now on: the BAR's number, with the member as in a device's number, the first guest
    /// physical address, and its size in bytes, a power of two; with size zero it decodes none. Refused outside the machine's window for that, if the address is not a
    /// multiple of the size, and where another function decodes: then it is nowhere.
    Decode = 7,
    /// Returns 64 bits that nobody can guess, of the CPU's own generator. Refused if it has none now, or never.
    Random = 8,
    /// Passes bytes on to the other side of a port: how many (up to 16), with the port's number as [`port_count`] has it, and two words.
    /// Those that find no room are not taken. Returns how the port is then ([`Sent`]). Refused if there is no such port.
    Send = 9,
    /// Returns eight characters of a port's name: the port's number, and which of the [`PORT_NAME_WORDS`] words. The first character is in
    /// the lowest byte, and zeros follow the last. Refused if there is no such port.
    PortName = 10,
    /// The guest does not need a part of its memory: the guest physical address, and how many bytes, both multiples of [`BLOCK`]. It goes back to
    /// the pool that it came from when all vCPUs have left their guests, and is zero when it is touched again. With no bytes: has those leave that
    /// were named, and returns how many of these calls have no effect yet. Nothing is lost but what those bytes hold if the same ones are named
    /// again. Refused if the VM's memory comes from no pool, if that is no memory of it, and if too many wait already.
    Release = 11,
    /// The guest uses again what was named by [`Call::Release`] and has not gone: it stays.
    Keep = 12,
}

/// What [`Call::Release`] takes multiples of: 2 MiB.
pub const BLOCK: u64 = 2 << 20;

impl Call {
    /// Returns the call with this number.
    #[inline(always)] // Of each way out.
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Done,
            1 => Self::Print,
            2 => Self::Log,
            3 => Self::Alarm,
            4 => Self::Panic,
            5 => Self::Time,
            6 => Self::Message,
            7 => Self::Decode,
            8 => Self::Random,
            9 => Self::Send,
            10 => Self::PortName,
            11 => Self::Release,
            12 => Self::Keep,
            _ => return None,
        })
    }
}

/// The most ports of a service. They are numbered from 1.
pub const PORTS: u64 = 13;

/// The words of a port's name, which has fewer characters than they have bytes.
pub const PORT_NAME_WORDS: u64 = 4;

/// Returns the first argument of [`Call::Send`]: how many bytes, for this port.
pub const fn port_count(port: u64, count: u64) -> u64 {
    port << PORT_SHIFT | count
}

/// Returns the port and the number of bytes that are in it.
pub const fn split_port_count(argument: u64) -> (u64, u64) {
    (argument >> PORT_SHIFT, argument & ((1 << PORT_SHIFT) - 1))
}

/// The bits of a number of bytes below the port.
const PORT_SHIFT: u32 = 8;

/// How a port is, as [`Call::Send`] says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Somebody is at the other side. What is sent to nobody is taken, and gone.
    pub is_open: bool,
    /// For how many bytes more there is room: at most [`Sent::MOST`].
    pub room: u64,
    /// How many bytes were taken since the hypervisor began, modulo 2 to the power of [`Sent::COUNT_BITS`].
    pub count: u64,
}

impl Sent {
    /// The bits of the count.
    pub const COUNT_BITS: u32 = 48;
    /// The largest room that can be said.
    pub const MOST: u64 = 0x7ffe;

    /// Returns it as a word.
    pub const fn word(self) -> u64 {
        let room = if self.room < Self::MOST { self.room } else { Self::MOST };
        (self.is_open as u64) << 63 | room << Self::COUNT_BITS | self.count & ((1 << Self::COUNT_BITS) - 1)
    }

    /// Returns what a word says. One of a refused call says that nobody is there.
    pub const fn from_word(word: u64) -> Self {
        if word == REFUSED {
            return Self { is_open: false, room: Self::MOST, count: 0 };
        }
        let count = word & ((1 << Self::COUNT_BITS) - 1);
        Self { is_open: word >> 63 != 0, room: word >> Self::COUNT_BITS & 0x7fff, count }
    }
}

/// Returns the word of a terminal's size, in characters; zero if it is not known.
pub const fn terminal_size(columns: u16, rows: u16) -> u64 {
    (rows as u64) << 16 | columns as u64
}

/// Returns the columns and rows that are in the word of a terminal's size.
pub const fn split_size(word: u64) -> (u16, u16) {
    (word as u16, (word >> 16) as u16)
}

/// Among the levels of [`Call::Done`]: the service has room again for characters that it did not take.
pub const ROOM: u64 = 1 << 63;

/// Among the levels of [`Call::Done`]: the service has more to do. Its alarm goes off as soon as it may, when the guest has had a turn.
pub const AGAIN: u64 = 1 << 62;

/// Among the levels of [`Call::Done`], if there are no characters: a PCI function sends a message-signalled interrupt, as by
/// [`Call::Message`]. The first word is its address, the second its data and the member ([`message_word`]).
pub const MESSAGE: u64 = 1 << 61;

/// The bits of a message's data below the member.
const DATA_BITS: u32 = 32;

/// Returns the second word of a message.
#[inline(always)] // A shift.
pub const fn message_word(member: u64, data: u32) -> u64 {
    member << DATA_BITS | data as u64
}

/// Returns the member and the data that are in the second word of a message.
#[inline(always)] // Two shifts.
pub const fn split_message(word: u64) -> (u64, u64) {
    (word >> DATA_BITS, word & ((1 << DATA_BITS) - 1))
}

/// In the number of a [`Kind::Memory`]: it is the memory of a disk.
pub const DISK: u64 = 1 << 63;

/// The disk cannot be written.
pub const READ_ONLY: u64 = 1;

/// In the number of a [`Kind::Memory`] with [`DISK`]: it is the image of a disk whose own memory has what was written over it. That
/// memory has, one behind the other, the room for what is written, four bytes for each 4096 of that, and four bytes for each 4096 of the disk.
/// It is zeros before its first use.
pub const IMAGE: u64 = 2;

/// The part of a [`Kind::Device`] that is its configuration space as the hypervisor has found it and set it up: a copy that cannot be written,
/// 256 bytes or 4096 (PCI Local Bus Specification 3.0, section 6.1).
pub const DEVICE_CONFIGURATION: u64 = 6;

/// The part of a [`Kind::Device`] that is memory of the service which the device reaches.
pub const DEVICE_MEMORY: u64 = 7;

/// The number of the [`Kind::Device`] that says that the device may interrupt and reach memory. Its words are those of a
/// [`Drive`](crate::drive::Drive) for a disk controller, and zeros for a network card.
pub const DEVICE_READY: u64 = 8;

/// The bit of the second of these words that says that the device is to reach memory by an IOMMU alone.
pub const DEVICE_GUARDED: u64 = 1 << 63;

/// The answer's value to a [`Kind::Device`] or a [`Kind::Interrupt`] of a device that the service does not drive, or to a [`Kind::Alarm`] if it does not
/// any more: the device neither interrupts nor reaches memory until the service begins anew.
pub const UNDRIVEN: u64 = 1;

/// The answer's value to a [`Kind::Device`] that has not been handled yet: the event comes again, at once and up to [`LATER_EVENTS`] times. Then a
/// device that was to be reset is not driven, and one that is ready is taken to begin in its own time. To a [`Kind::Interrupt`]: the next one comes
/// behind the next alarm, which the service sets if it wants one. So a device whose interrupt never ends takes nobody's CPU.
pub const LATER: u64 = 2;

/// How often an event comes that is answered by [`LATER`].
pub const LATER_EVENTS: u32 = 200;

/// How many parts a device has at most.
pub const DEVICE_PARTS: u64 = 8;

/// The most members that a service has.
pub const MEMBERS: u64 = 8;

/// How many queues each member of a service with several has at most.
pub const MEMBER_QUEUES: u64 = 4;

const _: () = assert!(MEMBERS * MEMBER_QUEUES <= crate::gate::Pending::QUEUES, "each queue has a bit");

/// The bits of a device's number below its member.
const MEMBER_SHIFT: u32 = 8;

/// Returns the number of a member's device.
#[inline(always)] // A shift.
pub const fn member_device(member: u64, device: u64) -> u64 {
    member << MEMBER_SHIFT | device
}

/// Returns the member and the device that are in a device's number.
#[inline(always)] // A shift and a mask.
pub const fn split_device(number: u64) -> (u64, u64) {
    (number >> MEMBER_SHIFT, number & ((1 << MEMBER_SHIFT) - 1))
}

/// Where [`Kind::Attach`] says where BARs are: there are none, since the device is behind MMIO. The other bits are the guest physical
/// address of its registers, which stay there.
pub const MMIO: u64 = 1 << 63;

/// The number of a PCI function's configuration space among its devices, or that of the registers of a device behind MMIO; BAR n is [`BARS`] + n.
pub const CONFIGURATION: u64 = 0;

/// The number of a PCI function's BAR 0 among its devices.
pub const BARS: u64 = 1;

/// How many BARs a function has.
pub const BAR_COUNT: u64 = 6;

/// The BAR of a PCI function in which its doorbells are.
pub const DOORBELL_BAR: u64 = 4;

/// What a call returns that is none, or whose arguments are wrong.
pub const REFUSED: u64 = u64::MAX;

/// The most characters in the two words of an event or a call.
pub const CHARACTERS: u64 = 16;

/// An event as it is in the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Event(pub [u64; REGISTERS]);

impl Event {
    /// Makes an event. Arguments that the kind does not have are zero.
    #[inline(always)] // A few moves.
    pub const fn new(kind: Kind, arguments: [u64; 5]) -> Self {
        let [a, b, c, d, e] = arguments;
        Self([kind as u64, a, b, c, d, e])
    }

    /// Returns its kind.
    pub const fn kind(&self) -> Option<Kind> {
        Kind::from_number(self.0[0])
    }
}

/// What a service has answered: the arguments of [`Call::Done`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Answer {
    /// The value.
    pub value: u64,
    /// The levels of its devices' interrupt lines.
    pub lines: u64,
    /// How many characters there are.
    pub count: u64,
    /// The characters.
    pub words: [u64; 2],
}

impl Answer {
    /// Takes a message-signalled interrupt of a member along ([`MESSAGE`]). There must be no characters.
    #[inline(always)] // A few moves.
    #[must_use]
    pub const fn with_message(self, member: u64, address: u64, data: u32) -> Self {
        Self { lines: self.lines | MESSAGE, words: [address, message_word(member, data)], ..self }
    }

    /// Returns the characters; no more than there can be.
    pub fn characters(&self) -> impl Iterator<Item = u8> + use<> {
        characters(self.count, self.words)
    }
}

/// Returns the first `count` characters of two words; no more than there can be.
pub fn characters(count: u64, words: [u64; 2]) -> impl Iterator<Item = u8> {
    let count = count.min(CHARACTERS) as usize;
    words.into_iter().flat_map(u64::to_le_bytes).take(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_agree() {
        for number in 0..32 {
            assert!(Kind::from_number(number).is_none_or(|kind| kind as u64 == number));
            assert!(Call::from_number(number).is_none_or(|call| call as u64 == number));
        }
        assert_eq!(Kind::from_number(0), None, "cleared registers are no event");
        assert_eq!(Call::from_number(u64::MAX), None);
    }

    #[test]
    fn a_devices_number_has_its_member() {
        assert_eq!(member_device(0, BARS + 5), BARS + 5, "a service with one member sees devices alone");
        assert_eq!(split_device(member_device(MEMBERS - 1, 3)), (MEMBERS - 1, 3));
    }

    #[test]
    fn a_terminals_size_has_columns_and_rows() {
        assert_eq!(split_size(terminal_size(132, 50)), (132, 50));
        assert_eq!(terminal_size(0, 0), 0, "it is not known");
    }

    #[test]
    fn how_a_port_is_fits_a_word() {
        for sent in [
            Sent { is_open: true, room: 0, count: 0 },
            Sent { is_open: false, room: Sent::MOST, count: (1 << Sent::COUNT_BITS) - 1 },
            Sent { is_open: true, room: Sent::MOST, count: (1 << Sent::COUNT_BITS) - 1 },
        ] {
            assert_eq!(Sent::from_word(sent.word()), sent);
            assert_ne!(sent.word(), REFUSED);
        }
        assert_eq!(
            Sent { room: 1 << 20, ..Sent::default() }.word(),
            Sent { room: Sent::MOST, ..Sent::default() }.word()
        );
        assert!(!Sent::from_word(REFUSED).is_open);
        assert_eq!(split_port_count(port_count(PORTS, CHARACTERS)), (PORTS, CHARACTERS));
    }

    #[test]
    fn no_more_characters_than_there_can_be() {
        let words = [u64::from_le_bytes(*b"abcdefgh"), u64::from_le_bytes(*b"ijklmnop")];
        assert!(characters(3, words).eq(*b"abc"));
        assert!(characters(u64::MAX, words).eq(*b"abcdefghijklmnop"));
        assert_eq!(Answer { count: 0, words, ..Answer::default() }.characters().count(), 0);
    }
}
