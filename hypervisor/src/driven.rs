// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI functions of the machine that services drive: network cards, disk controllers.

use alloc::vec::Vec;
use core::fmt;

use spin::Once;
use turnstile_service::abi;

use crate::arch::boot::Bridge;
use crate::arch::pci::{Claims, Function, HostBridge, Kind, Range, Reach, Refusal, Unlent};
use crate::arch::service::{Device, Window};
use crate::{line, machine};

/// A copy of a function's configuration space, and behind it memory that the function shares with the program that drives it. Blocks of this
/// many bytes are mapped with large pages.
const BLOCK: u64 = 2 << 20;
/// What of it is the copy's: a page.
const COPY: u64 = 4096;

/// A function that a service has.
#[derive(Debug)]
pub struct Driven {
    function: Function<Bridge>,
    /// An IOMMU keeps it to the memory that is its own, and it may be lent a VM's.
    lends: bool,
}

impl Driven {
    /// The number of its interrupt.
    pub const fn interrupt(&self) -> u32 {
        self.function.interrupt
    }

    /// Masks or unmasks its interrupt.
    pub fn mask(&self, masked: bool) {
        self.function.mask(masked);
    }

    /// Lets it reach memory and interrupt, or no longer. Only who is inside the service that has it.
    pub fn allow(&self, allowed: bool) {
        self.function.allow(allowed);
    }

    /// Lets it reach the memory of the only VM that its service serves, and says in the windows where, if an IOMMU keeps it to that. Otherwise
    /// the program copies, as it does for memory that is mapped on demand: a function that finds nothing mapped fails, and does not wait. The
    /// function is silent.
    ///
    /// # Errors
    /// When that should be, and cannot.
    pub fn lend(&self, windows: &mut [Window]) -> Result<(), Unlent> {
        if !self.lends || windows.iter().any(|window| window.on_demand) {
            return Ok(());
        }
        let pieces: Vec<Range> =
            windows.iter().map(|window| Range { base: window.host, size: window.size }).collect();
        let buses = self.function.lend(&pieces)?;
        windows.iter_mut().zip(buses).for_each(|(window, bus)| window.bus = bus);
        Ok(())
    }

    /// Takes that back; nobody else may be given that memory before. The function is silent. False if the IOMMU does not say that it is done.
    #[must_use = "nobody else may be given memory that it still reaches"]
    pub fn take_back(&self) -> bool {
        !self.lends || self.function.take_back()
    }
}

/// Which function a service is to have.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Its kind.
    pub kind: Kind,
    /// Its number among the machine's functions of that kind.
    pub number: usize,
    /// Whether the configuration accepts that it, and its program, reach all memory.
    pub trusted: bool,
    /// What the configuration says of it, for the program.
    pub settings: [u64; 2],
}

/// Why a service cannot have its function.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    /// There is no memory for both.
    Memory(machine::Error),
    /// The machine's PCI.
    Pci(Refusal),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its {} cannot be used: ", self.kind)?;
        match &self.cause {
            Cause::Memory(error) => error.fmt(f),
            Cause::Pci(refusal) => refusal.fmt(f),
        }
    }
}

/// Gives a function, which is to interrupt the CPU of this index. Returns what its program is to have of it, too. If it is to `stray` and an IOMMU
/// keeps it from that, its program is told that the memory is where that of somebody else is.
///
/// # Errors
/// When the machine has no such function, or no memory for it, or nothing keeps it to that and it is not trusted.
#[inline(never)] // What it needs of the stack is given back.
pub fn claim(
    claims: &mut Claims<Bridge>,
    (wanted, stray): (Wanted, bool),
    cpu: usize,
) -> Result<(Driven, Device), Error> {
    let Wanted { kind, number, trusted, settings } = wanted;
    let refused = |refusal| Error { kind, cause: Cause::Pci(refusal) };
    let function = claims.claim(kind, number, cpu).map_err(refused)?;
    let copy = machine::storage(BLOCK, &function.configuration)
        .map_err(|error| Error { kind, cause: Cause::Memory(error) })?;
    let shared = Range { base: copy + COPY, size: BLOCK - COPY };
    let Reach { bus, guarded } = function.reach(shared, trusted).map_err(refused)?;
    let guest = if stray && guarded { bus.wrapping_add(BLOCK) } else { bus };
    let memory = Window { guest, host: shared.base, size: shared.size, ..Window::default() };
    let configuration = Window { host: copy, size: COPY, read_only: true, ..Window::default() };
    // A device of virtio that reaches past the IOMMU is not driven: the function is asked before, and the program looks once more.
    let [first, second] = settings;
    let kept = if guarded && !trusted { abi::DEVICE_GUARDED } else { 0 };
    let device = Device::new(&function.bars, configuration, memory, [first, second | kept]);
    // Where one that strays is led may be the VM's memory.
    Ok((Driven { function, lends: guarded && !stray }, device))
}

/// The bridges behind which services have functions.
static WATCHED: Once<&[Bridge]> = Once::new();

/// Has IOMMUs of bridges behind which services have functions interrupt the CPU of this index when they have refused something.
pub fn watch(bridges: &'static [Bridge], cpu: usize) {
    WATCHED.call_once(|| bridges);
    bridges.iter().for_each(|bridge| {
        bridge.watch(cpu);
    });
}

/// Reports what IOMMUs have refused functions of this one's bridge: of each function once.
pub fn report(function: &Driven) {
    function.function.faults(&mut |fault| line::report(format_args!("{fault}")));
}

/// Reports it of all bridges that are watched: an interrupt that nobody has connected starts none.
#[cold]
#[inline(never)] // The registers that it needs are not saved for interrupts of services.
pub fn report_all() {
    let bridges = WATCHED.get().into_iter().flat_map(|bridges| bridges.iter());
    bridges.for_each(|bridge| bridge.faults(&mut |fault| line::report(format_args!("{fault}"))));
}
