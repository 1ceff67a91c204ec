// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PCI functions of the machine, for services that drive them: which there are, and what becomes of one when a service gets it.
//!
//! The hypervisor itself drives none. A program sees its function's registers and a copy of its configuration space; what decides about other
//! programs stays here: the command register, the base addresses, the interrupt's message.

use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

use pci_types::capability::{MsixCapability, PciCapability};
use pci_types::{Bar, CommandRegister, EndpointHeader, HeaderType, PciHeader};

pub use pci_types::PciAddress;
pub use turnstile_firmware::Range;

pub use self::bridge::{CONFIGURATION, Fault, HostBridge, Reach, Unlent, Wiring};
use crate::memory::PAGE;
use crate::service::Window;

mod bridge;
mod virtio;

/// Base address registers of a function (PCI Local Bus Specification 3.0, section 6.2.5).
const BARS: u8 = 6;
/// The command register, and the status register above it (section 6.2.2).
const COMMAND: u16 = 0x04;
/// The first base address register.
const BAR: u16 = 0x10;
/// In one of memory, the kinds that there are not: below 1 MiB, and reserved. In one of ports it is reserved.
const RESERVED_KINDS: u32 = 1 << 1;
/// Bytes of an entry of a table of messages (section 6.8.2).
const ENTRY: u64 = 16;
/// The register of a bridge with its buses: primary, secondary, subordinate (PCI-to-PCI Bridge Architecture Specification 1.2, section 3.2.5).
const BRIDGE_BUSES: u16 = 0x18;
/// What is read where no function is: its vendor.
const NO_VENDOR: u16 = 0xffff;

/// The kinds of functions that services drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ethernet controllers.
    Ethernet,
    /// Controllers of non-volatile memory, by NVM Express.
    Nvme,
    /// Virtio block devices.
    VirtioBlock,
}

impl Kind {
    /// Says whether a function is of this kind: by its class code (PCI Code and ID Assignment Specification: base class, subclass, programming
    /// interface) or, with virtio, by its IDs (Virtual I/O Device Specification 1.2, section 4.1.2: of a modern device, of one that is both).
    fn is(self, header: &PciHeader, bridge: &impl HostBridge) -> bool {
        let (_, base, sub, interface) = header.revision_and_class(bridge);
        match self {
            Self::Ethernet => (base, sub) == (0x02, 0x00),
            Self::Nvme => (base, sub, interface) == (0x01, 0x08, 0x02),
            Self::VirtioBlock => matches!(header.id(bridge), (0x1af4, 0x1042 | 0x1001)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "network card",
            Self::Nvme => "NVMe controller",
            Self::VirtioBlock => "virtio disk",
        })
    }
}

/// Why a service cannot have a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are only so many functions of this kind.
    Absent(usize),
    /// This BAR does not fit into what the bridge has for functions.
    NoRoom(u8),
    /// No CPU reaches this BAR.
    Unreachable(u8),
    /// This BAR is none, or the table of messages in it has no room there.
    Malformed(u8),
    /// It has no interrupt that the machine connects.
    NoInterrupt,
    /// It does not reach memory.
    NoMemory,
    /// It reaches all memory, and nobody has said that this is accepted.
    Unguarded,
    /// It is a virtio device that reaches memory past the IOMMU, and nobody has said that this is accepted.
    Bypassing,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(0) => f.write_str("the machine has no such PCI function"),
            Self::Absent(count) => {
                write!(f, "the machine has only {count} such PCI functions; numbers begin at 0")
            }
            Self::NoRoom(bar) => write!(f, "there is no room for BAR {bar} of its PCI function"),
            Self::Unreachable(bar) => write!(f, "no CPU reaches BAR {bar} of its PCI function"),
            Self::Malformed(bar) => write!(f, "BAR {bar} of its PCI function makes no sense"),
            Self::NoInterrupt => f.write_str("its PCI function has no interrupt that this machine connects"),
            Self::NoMemory => f.write_str("its PCI function does not reach memory"),
            Self::Unguarded => f.write_str(
                "nothing keeps its PCI function to its own memory: the machine has no IOMMU; write trusted = true if you accept that",
            ),
            Self::Bypassing => f.write_str(
                "its PCI function, a virtio device, bypasses the machine's IOMMU (no VIRTIO_F_ACCESS_PLATFORM); write trusted = true if you accept that",
            ),
        }
    }
}

/// A function that a service has.
pub struct Function<B: 'static> {
    bridge: &'static B,
    address: PciAddress,
    /// Its command register while it may interrupt and reach memory.
    command: CommandRegister,
    /// Its BARs of memory, by their numbers: what a program may have of them.
    pub bars: Vec<(u8, Window)>,
    /// Its configuration space, as a program sees it.
    pub configuration: [u8; CONFIGURATION],
    /// The number of its interrupt, as the hypervisor is told of it.
    pub interrupt: u32,
    /// What it reaches beside its own memory, as far as that is known.
    lent: AtomicU8,
}

/// A function reaches its own memory alone.
const OWN: u8 = 0;
/// It reaches a VM's memory, too.
const LENT: u8 = 1;
/// As that, or it is not known what it reaches, because its IOMMU has not answered: that is to be taken back.
const UNKNOWN: u8 = 2;
/// Its IOMMU has not said that this was taken back. It is lent nothing any more.
const LOST: u8 = 3;

/// Where a function's registers are.
#[derive(Default)]
struct Placed {
    /// What a program may have of its BARs, by their numbers.
    bars: Vec<(u8, Window)>,
    /// The physical address of its table of messages.
    table: Option<u64>,
}

/// The command register of a function that decodes its BARs, does not interrupt, and reaches no memory.
const SILENT: CommandRegister = CommandRegister::MEMORY_ENABLE.union(CommandRegister::INTERRUPT_DISABLE);

/// Gives functions to services, while the hypervisor starts.
pub struct Claims<B: 'static> {
    bridges: Vec<Behind<B>>,
}

/// A host bridge, and what is behind it.
struct Behind<B: 'static> {
    bridge: &'static B,
    functions: Vec<PciAddress>,
    /// What of the bridge's room is taken.
    taken: u64,
    /// The functions that have been given.
    given: Vec<PciAddress>,
}

impl<B: HostBridge> Claims<B> {
    /// Nothing has been given.
    pub fn new(bridges: &'static [B]) -> Self {
        let behind = |bridge| Behind { bridge, functions: functions(bridge), taken: 0, given: Vec::new() };
        Self { bridges: bridges.iter().map(behind).collect() }
    }

    /// Gives the function of a kind with this number, counted from 0 over all buses. It interrupts this CPU, and reaches memory, from
    /// [`Function::allow`] on.
    ///
    /// # Errors
    /// Says what the machine lacks.
    pub fn claim(&mut self, kind: Kind, number: usize, cpu: usize) -> Result<Function<B>, Refusal> {
        let (at, address) = self.find(kind, number)?;
        self.bridges.get_mut(at).ok_or(Refusal::Absent(number))?.give(address, cpu)
    }

    /// Finds the function with this number among those of a kind.
    fn find(&self, kind: Kind, number: usize) -> Result<(usize, PciAddress), Refusal> {
        let mut count = 0;
        for (at, Behind { bridge, functions, .. }) in self.bridges.iter().enumerate() {
            for address in functions {
                let header = PciHeader::new(*address);
                if header.header_type(*bridge) != HeaderType::Endpoint || !kind.is(&header, *bridge) {
                    continue;
                }
                if count == number {
                    return Ok((at, *address));
                }
                count += 1;
            }
        }
        Err(Refusal::Absent(count))
    }
}

impl<B: HostBridge> Behind<B> {
    /// Gives a function.
    fn give(&mut self, address: PciAddress, cpu: usize) -> Result<Function<B>, Refusal> {
        let bridge = self.bridge;
        let mut header =
            EndpointHeader::from_header(PciHeader::new(address), bridge).ok_or(Refusal::Absent(0))?;
        // A BAR is nowhere while its size is asked for, and the function does nothing until it is set up.
        set_command(bridge, address, CommandRegister::INTERRUPT_DISABLE);
        let messages = messages(&header, bridge);
        let given = &self.given;
        let others: Vec<_> =
            self.functions.iter().filter(|other| **other != address && !given.contains(other)).collect();
        // Where firmware has placed something, what is free is not known.
        let is_free = !others.iter().any(|other| is_placed(bridge, **other));
        let taken = Some(&mut self.taken).filter(|_| is_free);
        let Placed { bars, table } = place(&mut header, bridge, taken, messages.as_ref())?;
        set_command(bridge, address, SILENT);
        let by_message = messages.and_then(|messages| wire(messages, bridge, address, table, cpu));
        let (interrupt, command) = match by_message {
            Some(number) => (number, SILENT),
            None => {
                // Several functions may have one line, and nobody would ever silence the others.
                others.iter().for_each(|other| silence_pin(bridge, **other));
                let number = match header.interrupt(bridge).0 {
                    0 => None,
                    pin => bridge.connect(address, Wiring::Pin(pin), cpu),
                };
                (number.ok_or(Refusal::NoInterrupt)?, CommandRegister::MEMORY_ENABLE)
            }
        };
        self.given.push(address);
        let command = command | CommandRegister::BUS_MASTER_ENABLE;
        let configuration = copy(bridge, address);
        let lent = AtomicU8::new(OWN);
        Ok(Function { bridge, address, command, bars, configuration, interrupt, lent })
    }
}

/// Returns the functions behind a bridge: those of a bus before those behind its bridges, which have numbers if firmware has given them.
fn functions(bridge: &impl HostBridge) -> Vec<PciAddress> {
    let (first, last) = bridge.buses();
    let (mut found, mut buses) = (Vec::new(), Vec::from([first]));
    // Buses grow: so no bus comes twice, whatever bridges say.
    let mut at = 0;
    while let Some(&bus) = buses.get(at) {
        at += 1;
        for device in 0..32 {
            functions_of(bridge, bus, device, |address| {
                found.push(address);
                if PciHeader::new(address).header_type(bridge) != HeaderType::PciPciBridge {
                    return;
                }
                // SAFETY: a register that every bridge has; reading it changes nothing.
                let secondary = (unsafe { bridge.read(address, BRIDGE_BUSES) } >> 8) as u8;
                if secondary > bus && secondary <= last && !buses.contains(&secondary) {
                    buses.push(secondary);
                }
            });
        }
    }
    found
}

/// Hands over the functions of a device that are there.
fn functions_of(bridge: &impl HostBridge, bus: u8, device: u8, mut take: impl FnMut(PciAddress)) {
    for function in 0..8 {
        let address = PciAddress::new(0, bus, device, function);
        let header = PciHeader::new(address);
        let is_there = header.id(bridge).0 != NO_VENDOR;
        if is_there {
            take(address);
        }
        if function == 0 && (!is_there || !header.has_multiple_functions(bridge)) {
            return;
        }
    }
}

/// Returns the capability by which a function sends messages from a table, if it has it. One without a table is never used.
fn messages(header: &EndpointHeader, bridge: &impl HostBridge) -> Option<MsixCapability> {
    let mut found = None;
    // A list that does not end is no list.
    for capability in header.capabilities(bridge).take(CONFIGURATION / 4) {
        match capability {
            PciCapability::Msi(single) => single.set_enabled(false, bridge),
            PciCapability::MsiX(messages) => found = found.or(Some(messages)),
            _ => {}
        }
    }
    found
}

/// Places the BARs of memory that firmware has not placed, and returns what of each a program may have: whole pages, up to those with the
/// table of messages.
fn place(
    header: &mut EndpointHeader,
    bridge: &impl HostBridge,
    mut taken: Option<&mut u64>,
    messages: Option<&MsixCapability>,
) -> Result<Placed, Refusal> {
    let (mut placed, mut number) = (Placed::default(), 0);
    while number < BARS {
        let this = number;
        // SAFETY: a register that every function has.
        let kind = unsafe { bridge.read(header.header().address(), BAR + 4 * u16::from(this)) };
        if kind & RESERVED_KINDS != 0 {
            return Err(Refusal::Malformed(this));
        }
        let bar = header.bar(this, bridge);
        number += 1 + u8::from(matches!(bar, Some(Bar::Memory64 { .. })));
        let (at, size) = match bar {
            Some(Bar::Memory64 { address, size, .. }) => (address, size),
            Some(Bar::Memory32 { address, size, .. }) => (address.into(), size.into()),
            _ => continue,
        };
        let at = match at {
            0 => set_bar(header, bridge, taken.as_deref_mut(), (this, size))?,
            at => at,
        };
        let table = table_in(messages, this, size)?;
        placed.table = placed.table.or(table.and_then(|offset| bridge.physical(at.checked_add(offset)?)));
        let size = table.unwrap_or(size) & !(PAGE - 1);
        if size != 0 && at.is_multiple_of(PAGE) {
            let host = bridge.physical(at).ok_or(Refusal::Unreachable(this))?;
            placed.bars.push((this, Window { host, size, registers: true, ..Window::default() }));
        }
    }
    Ok(placed)
}

/// Puts a BAR of so many bytes where there is room, and returns its bus address.
fn set_bar(
    header: &mut EndpointHeader,
    bridge: &impl HostBridge,
    taken: Option<&mut u64>,
    (bar, size): (u8, u64),
) -> Result<u64, Refusal> {
    let no_room = Refusal::NoRoom(bar);
    let at = taken.and_then(|taken| room(bridge, taken, size.max(PAGE))).ok_or(no_room)?;
    let place = usize::try_from(at).map_err(|_| no_room)?;
    // SAFETY: the function does not decode memory now, and nobody else is there.
    unsafe { header.write_bar(bar, bridge, place) }.map_err(|_| no_room)?;
    Ok(at)
}

/// Returns the offset of the table of messages in a BAR of so many bytes, if it is in that one.
fn table_in(messages: Option<&MsixCapability>, bar: u8, size: u64) -> Result<Option<u64>, Refusal> {
    let Some(messages) = messages.filter(|messages| messages.table_bar() == bar) else { return Ok(None) };
    let (offset, vectors) = (u64::from(messages.table_offset()), u64::from(messages.table_size()));
    if offset + ENTRY * vectors > size { Err(Refusal::Malformed(bar)) } else { Ok(Some(offset)) }
}

/// Takes as many bytes, at a multiple of that, of a bridge's room.
fn room(bridge: &impl HostBridge, taken: &mut u64, size: u64) -> Option<u64> {
    let (first, length) = bridge.room()?;
    let at = first.checked_add(*taken)?.checked_next_multiple_of(size)?;
    let end = at.checked_add(size)? - first;
    *taken = if end <= length { end } else { return None };
    Some(at)
}

/// Connects a function's interrupt by messages, if the machine takes them. Otherwise it sends none.
fn wire(
    mut messages: MsixCapability,
    bridge: &impl HostBridge,
    address: PciAddress,
    table: Option<u64>,
    cpu: usize,
) -> Option<u32> {
    messages.set_function_mask(true, bridge);
    let table = table.filter(|_| bridge.takes_messages());
    messages.set_enabled(table.is_some(), bridge);
    let wiring = Wiring::Messages { table: table?, vectors: messages.table_size() };
    let number = bridge.connect(address, wiring, cpu)?;
    messages.set_function_mask(false, bridge);
    Some(number)
}

/// Writes a command register, and nothing to the status register beside it, whose bits are cleared by ones.
fn set_command(bridge: &impl HostBridge, address: PciAddress, command: CommandRegister) {
    // SAFETY: the function is a service's, or nobody's, and this is what the hypervisor wants of it.
    unsafe { bridge.write(address, COMMAND, command.bits().into()) };
}

/// Keeps a function that nobody drives from its pin.
fn silence_pin(bridge: &impl HostBridge, address: PciAddress) {
    let command = PciHeader::new(address).command(bridge);
    set_command(bridge, address, command | CommandRegister::INTERRUPT_DISABLE);
}

/// Says whether a BAR of a function is somewhere.
fn is_placed(bridge: &impl HostBridge, address: PciAddress) -> bool {
    let is_endpoint = PciHeader::new(address).header_type(bridge) == HeaderType::Endpoint;
    // SAFETY: registers that every function has; reading them changes nothing.
    let at = |bar| unsafe { bridge.read(address, BAR + 4 * bar) };
    is_endpoint && (0..u16::from(BARS)).map(at).any(|bar| bar & 1 == 0 && bar & !0xf != 0)
}

/// Copies a configuration space.
fn copy(bridge: &impl HostBridge, address: PciAddress) -> [u8; CONFIGURATION] {
    let mut bytes = [0; CONFIGURATION];
    for (register, word) in (0..).step_by(4).zip(bytes.chunks_exact_mut(4)) {
        // SAFETY: reading a configuration space changes nothing that matters: the program's driver sets the function up anew.
        word.copy_from_slice(&unsafe { bridge.read(address, register) }.to_le_bytes());
    }
    bytes
}

impl<B: HostBridge> Function<B> {
    /// Lets it reach this memory, and no other, or all if it is `trusted` with it.
    ///
    /// # Errors
    /// When it does not reach that, or all memory without being trusted.
    pub fn reach(&self, memory: Range, trusted: bool) -> Result<Reach, Refusal> {
        let reach = self.bridge.reach(self.address, memory, trusted).ok_or(Refusal::NoMemory)?;
        let bypasses = reach.guarded && virtio::bypasses(self.bridge, self.address, &self.bars);
        match reach {
            _ if trusted => Ok(Reach { guarded: reach.guarded && !bypasses, ..reach }),
            Reach { guarded: false, .. } => Err(Refusal::Unguarded),
            _ if bypasses => Err(Refusal::Bypassing),
            _ => Ok(reach),
        }
    }

    /// Lets it reach memory of a VM, too, as [`HostBridge::lend`] has it. Only behind an IOMMU that guards it, while it is not allowed to reach memory.
    /// If memory was not taken back once, it is lent nothing any more. One caller at a time.
    ///
    /// # Errors
    /// See [`Unlent`].
    pub fn lend(&self, pieces: &[Range]) -> Result<Vec<u64>, Unlent> {
        if matches!(self.lent.load(Ordering::Relaxed), UNKNOWN | LOST) {
            return Err(Unlent::NoAnswer);
        }
        let lent = self.bridge.lend(self.address, pieces);
        let now = match lent {
            Ok(_) => LENT,
            Err(Unlent::NoTables) => OWN,
            Err(Unlent::NoAnswer) => UNKNOWN,
        };
        self.lent.store(now, Ordering::Relaxed);
        lent
    }

    /// Takes that back, as [`HostBridge::take_back`] has it. Memory that it was not lent is not lost.
    #[must_use = "nobody else may be given memory that it still reaches"]
    pub fn take_back(&self) -> bool {
        if matches!(self.lent.load(Ordering::Relaxed), OWN | LOST) {
            return true;
        }
        let is_back = self.bridge.take_back(self.address);
        self.lent.store(if is_back { OWN } else { LOST }, Ordering::Relaxed);
        is_back
    }

    /// Lets it reach memory and interrupt, or no longer. Only who is inside the service that has it.
    pub fn allow(&self, allowed: bool) {
        set_command(self.bridge, self.address, if allowed { self.command } else { SILENT });
        if !allowed {
            // Accesses that it has begun arrive before the answer of this read (PCI Express Base Specification, section 2.4.1).
            let _ = PciHeader::new(self.address).id(self.bridge);
        }
    }

    /// Hands over what an IOMMU has refused functions of its bridge, as [`HostBridge::faults`] has it.
    pub fn faults(&self, take: &mut dyn FnMut(Fault)) {
        self.bridge.faults(take);
    }

    /// Masks or unmasks its interrupt.
    pub fn mask(&self, masked: bool) {
        self.bridge.mask(self.interrupt, masked);
    }
}

impl<B> fmt::Debug for Function<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)
    }
}

#[cfg(test)]
mod tests;
