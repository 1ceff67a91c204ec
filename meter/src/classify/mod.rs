// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one instruction does, by class.

pub mod arm64;
mod arm64_names;
pub mod power64;
pub mod x86;

use std::borrow::Cow;

/// Makes the enumeration of classes with their names in the reading.
macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident = $name:literal,)*) => {
        /// A class of operations. An instruction can be of several.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Class { $($(#[$doc])* $class,)* }

        impl Class {
            /// All classes.
            pub const ALL: &[Class] = &[$(Class::$class,)*];

            /// The name in the reading.
            pub const fn name(self) -> &'static str {
                match self { $(Class::$class => $name,)* }
            }
        }
    };
}

classes! {
    /// Instructions.
    Instructions = "instructions",
    /// Instructions that read memory.
    Loads = "loads",
    /// Instructions that write memory.
    Stores = "stores",
    /// Branches, calls and returns, taken or not.
    Branches = "branches",
    /// Distinct 64-byte lines of code.
    Lines = "lines",
    /// Instructions of services: neither the guest's nor privileged.
    InServices = "in_services",
    /// Those of them that copy bytes of guests.
    Copy = "copy",
    /// Atomic read-modify-write instructions and store-conditionals.
    Atomics = "atomics",
    /// Exceptions taken, the exit itself included.
    ExceptionEntries = "exception_entries",
    /// Returns from exceptions.
    ExceptionReturns = "exception_returns",
    /// Reads of system registers.
    RegisterReads = "register_reads",
    /// Writes of system registers.
    RegisterWrites = "register_writes",
    /// Those reads that are not of mere scratch or of the processor's own flags.
    HardwareReads = "hardware_reads",
    /// Those writes that are not of mere scratch or of the processor's own flags.
    HardwareWrites = "hardware_writes",
    /// Reads of interrupt controllers, by register or by memory.
    IrqchipReads = "irqchip_reads",
    /// Writes of interrupt controllers, by register or by memory.
    IrqchipWrites = "irqchip_writes",
    /// Reads of other devices by memory.
    MmioReads = "mmio_reads",
    /// Writes of other devices by memory.
    MmioWrites = "mmio_writes",
    /// arm64: instruction synchronization barriers.
    Isb = "isb",
    /// arm64: data synchronization barriers.
    Dsb = "dsb",
    /// arm64: data memory barriers.
    Dmb = "dmb",
    /// arm64: invalidations of translations.
    Tlbi = "tlbi",
    /// arm64: address translations by instruction.
    At = "at",
    /// arm64: cache maintenance.
    Cache = "cache",
    /// x86: VMRUN.
    Vmrun = "vmrun",
    /// x86: VMLOAD.
    Vmload = "vmload",
    /// x86: VMSAVE.
    Vmsave = "vmsave",
    /// x86: CLGI.
    Clgi = "clgi",
    /// x86: STGI.
    Stgi = "stgi",
    /// x86: reads of model-specific registers.
    Rdmsr = "rdmsr",
    /// x86: writes of model-specific registers.
    Wrmsr = "wrmsr",
    /// x86: reads of ports.
    PortReads = "port_reads",
    /// x86: writes of ports.
    PortWrites = "port_writes",
    /// x86: CPUID.
    Cpuid = "cpuid",
    /// x86: LFENCE, SFENCE, MFENCE.
    Fences = "fences",
    /// x86: INVLPG.
    Invlpg = "invlpg",
    /// x86: INVLPGA.
    Invlpga = "invlpga",
    /// x86: RDTSC, RDTSCP.
    Rdtsc = "rdtsc",
    /// POWER: reads of special-purpose registers.
    Mfspr = "mfspr",
    /// POWER: writes of special-purpose registers.
    Mtspr = "mtspr",
    /// POWER: reads of the time base.
    Mftb = "mftb",
    /// POWER: invalidations of translations on all processors.
    Tlbie = "tlbie",
    /// POWER: invalidations of translations on this processor.
    Tlbiel = "tlbiel",
    /// POWER: tlbsync.
    Tlbsync = "tlbsync",
    /// POWER: ptesync.
    Ptesync = "ptesync",
    /// POWER: the other forms of sync, and eieio.
    Sync = "sync",
    /// POWER: isync.
    Isync = "isync",
    /// POWER: instructions on the segment lookaside buffer.
    Slb = "slb",
    /// POWER: messages to processors.
    Doorbells = "doorbells",
    /// POWER: cache-inhibited loads.
    CiLoads = "ci_loads",
    /// POWER: cache-inhibited stores.
    CiStores = "ci_stores",
}

/// How many classes there are.
pub const COUNT: usize = Class::ALL.len();

/// A set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes(u64);

const _: () = assert!(COUNT <= 64, "a set of classes is one word");

impl Classes {
    /// The set with one class more.
    #[must_use]
    pub const fn with(self, class: Class) -> Self {
        Classes(self.0 | 1 << class as u8)
    }

    /// The set with one class more if `condition` holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, class: Class) -> Self {
        if condition { self.with(class) } else { self }
    }

    /// Whether the class is in the set.
    pub const fn has(self, class: Class) -> bool {
        self.0 >> class as u8 & 1 != 0
    }

    /// The classes of the set, in order.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let index = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            Class::ALL.get(index as usize).copied()
        })
    }
}

/// An access to a system register.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// Whether the register is written.
    pub write: bool,
    /// The architecture's name of the register.
    pub register: Cow<'static, str>,
}

/// What one instruction does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Its classes.
    pub classes: Classes,
    /// The system register that it accesses.
    pub access: Option<Access>,
    /// Whether it may access a device: one that cannot is not watched.
    pub may_be_device: bool,
}

impl Effect {
    /// An effect of one class.
    fn of(class: Class) -> Self {
        Effect { classes: Classes::default().with(class), ..Effect::default() }
    }

    /// An access to memory.
    fn memory(load: bool, store: bool) -> Self {
        let classes = Classes::default().with_if(load, Class::Loads).with_if(store, Class::Stores);
        Effect { classes, may_be_device: load || store, ..Effect::default() }
    }

    /// An access to a system register; `hardware` says that it is more than scratch.
    fn register(write: bool, register: impl Into<Cow<'static, str>>, hardware: bool) -> Self {
        let (all, some) = match write {
            false => (Class::RegisterReads, Class::HardwareReads),
            true => (Class::RegisterWrites, Class::HardwareWrites),
        };
        let classes = Classes::default().with(all).with_if(hardware, some);
        let access = Some(Access { write, register: register.into() });
        Effect { classes, access, may_be_device: false }
    }

    /// The effect with one class more.
    fn and(mut self, class: Class) -> Self {
        self.classes = self.classes.with(class);
        self
    }
}

/// Whether a device of this name is an interrupt controller.
pub fn is_irqchip(device: &str) -> bool {
    const PARTS: &[&str] = &["gic", "apic", "xive", "xics", "icp-"];
    PARTS.iter().any(|part| device.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_gives_back_what_was_put_in() {
        let set = Classes::default().with(Class::CiStores).with(Class::Loads).with_if(false, Class::At);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Class::Loads, Class::CiStores]);
        assert!(set.has(Class::Loads) && !set.has(Class::At));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = Class::ALL.iter().map(|class| class.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNT);
    }

    #[test]
    fn interrupt_controllers_are_told_by_name() {
        for device in ["gicv3_dist", "gic_cpu", "gicv3_its_control", "apic-msi", "ioapic", "xive-tima"] {
            assert!(is_irqchip(device), "{device}");
        }
        for device in ["pl011", "virtio-mmio", "pl031", "serial"] {
            assert!(!is_irqchip(device), "{device}");
        }
    }
}
