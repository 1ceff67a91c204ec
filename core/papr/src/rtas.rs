// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware (RTAS, LoPAPR chapter 7): a block of arguments in memory names a function by its token and has room for the
//! results. The guest enters the firmware at a few instructions that hand the block's address to the hypervisor ([`ENTRY`]).

mod block;
mod parameter;
pub mod pci;

use crate::Memory;
use crate::calendar;
use crate::code::Code;
use crate::processors::{Processors, Refused, Start};
use block::Block;

/// What lies at the firmware's entry: R3 goes to R4, the number of the call to R3; the call, and the return. Big-endian,
/// because the firmware is entered so.
pub const ENTRY: [u32; 5] = [0x7c64_1b78, 0x3c60_0000, 0x6063_f000, 0x4400_0022, 0x4e80_0020];

macro_rules! functions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $arguments:literal, $results:literal;)+) => {
        /// A function of the firmware.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Function { $($(#[$doc])* $variant),+ }

        impl Function {
            /// Every function.
            pub const ALL: &'static [Function] = &[$(Function::$variant),+];

            /// Returns the name of the property that holds its token.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Function::$variant => $name),+ }
            }

            /// Returns how many arguments it takes, and how many results it gives.
            const fn shape(self) -> (u32, u32) {
                match self { $(Function::$variant => ($arguments, $results)),+ }
            }
        }
    };
}

functions! {
    /// Shows a character.
    DisplayCharacter = "display-character", 1, 1;
    /// Reads the clock.
    GetTimeOfDay = "get-time-of-day", 0, 8;
    /// Sets the clock.
    SetTimeOfDay = "set-time-of-day", 7, 1;
    /// Turns the machine off.
    PowerOff = "power-off", 2, 1;
    /// Starts the machine again.
    SystemReboot = "system-reboot", 0, 1;
    /// Says whether a vCPU is stopped.
    QueryCpuStoppedState = "query-cpu-stopped-state", 1, 2;
    /// Starts a vCPU.
    StartCpu = "start-cpu", 3, 1;
    /// Stops the caller.
    StopSelf = "stop-self", 0, 1;
    /// Reads a fact about the machine.
    GetSystemParameter = "ibm,get-system-parameter", 3, 1;
    /// Sets one, which nobody may.
    SetSystemParameter = "ibm,set-system-parameter", 2, 1;
    /// Reports that the operating system cannot go on.
    OsTerm = "ibm,os-term", 1, 1;
    /// XICS: reads where a source goes.
    GetXive = "ibm,get-xive", 1, 3;
    /// XICS: routes a source.
    SetXive = "ibm,set-xive", 3, 1;
    /// XICS: masks a source.
    IntOff = "ibm,int-off", 1, 1;
    /// XICS: unmasks a source.
    IntOn = "ibm,int-on", 1, 1;
    /// Reads the configuration space of a PCI function.
    ReadPciConfig = "read-pci-config", 2, 2;
    /// Writes to it.
    WritePciConfig = "write-pci-config", 3, 1;
    /// Reads the configuration space of a PCI function behind a host bridge.
    IbmReadPciConfig = "ibm,read-pci-config", 4, 2;
    /// Writes to it.
    IbmWritePciConfig = "ibm,write-pci-config", 5, 1;
    /// Gives message-signalled interrupts to a PCI function. The fourth result may be left out.
    ChangeMsi = "ibm,change-msi", 6, 4;
    /// Returns the source of such an interrupt.
    QueryInterruptSource = "ibm,query-interrupt-source-number", 4, 3;
}

/// The token of the first function.
const FIRST_TOKEN: u32 = 0x2000;

impl Function {
    /// Returns its token.
    #[must_use]
    pub const fn token(self) -> u32 {
        FIRST_TOKEN + self as u32
    }

    fn of(token: u32) -> Option<Function> {
        Function::ALL.get(token.checked_sub(FIRST_TOKEN)? as usize).copied()
    }

    /// Whether it is there for guests with XICS only.
    #[must_use]
    pub const fn is_xics(self) -> bool {
        matches!(self, Function::GetXive | Function::SetXive | Function::IntOff | Function::IntOn)
    }

    /// Whether it is there for guests with PCI functions only.
    #[must_use]
    pub const fn is_pci(self) -> bool {
        self as u32 >= Function::ReadPciConfig as u32
    }

    /// Whether it takes a block with so many arguments and results.
    fn takes(self, (arguments, results): (u32, u32)) -> bool {
        (arguments, results) == self.shape() || self == Function::ChangeMsi && (arguments, results) == (6, 3)
    }
}

/// What a function reports (LoPAPR 7.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// It is done.
    Success = 0,
    /// It failed.
    Hardware = -1,
    /// An argument is wrong, or there is no such thing.
    Parameter = -3,
    /// Not for a guest.
    NotAuthorized = -9002,
    /// The buffer of a parameter is too small.
    BadLength = -9999,
}

/// What the firmware needs of the machine.
pub trait Services: pci::Functions {
    /// The states of the vCPUs.
    fn processors(&self) -> &Processors;
    /// The caller is about to stop: what others have sent to it until now is not for its next start. Nobody can start it before
    /// this is done.
    fn stopping(&mut self);
    /// Bytes of RAM.
    fn memory_size(&self) -> u64;
    /// The guest's clock: nanoseconds since 1970.
    fn clock(&self) -> u64;
    /// Sets the guest's clock.
    fn set_clock(&mut self, nanoseconds: u64);
    /// Writes to the console.
    fn display(&mut self, character: u8);
    /// XICS: where a source goes, and with which priority; `None` if there is none, or no XICS.
    fn route(&self, source: u32) -> Option<(u32, u8)>;
    /// XICS: routes a source; false if there is none, or no such vCPU.
    fn set_route(&mut self, source: u32, server: u32, priority: u8) -> bool;
    /// XICS: masks or unmasks a source; false if there is none.
    fn set_masked(&mut self, source: u32, masked: bool) -> bool;
}

/// What the caller must do after a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Go on.
    Continue,
    /// Tell this vCPU, which calls [`Processors::take_start`], and go on.
    Started(usize),
    /// Stop the calling vCPU, whose state is [`State::Stopped`](crate::processors::State::Stopped) already.
    Stopped,
    /// Stop the VM.
    PowerOff,
    /// Start the VM again.
    Reboot,
    /// Stop the VM: its operating system cannot go on.
    Terminated,
}

/// The most bytes of what R4 names.
pub const BLOCK: u64 = block::SIZE;

/// Carries out H_RTAS: `vcpu` is the caller, `address` its R4. Returns what goes to R3, and what comes after.
pub fn call(vcpu: usize, address: u64, memory: &impl Memory, services: &mut impl Services) -> (Code, Then) {
    let Some(block) = Block::read(memory, address) else { return (Code::PARAMETER, Then::Continue) };
    let Some(function) = Function::of(block.token()) else {
        let _ = block.finish(memory, Status::Parameter);
        return (Code::PARAMETER, Then::Continue);
    };
    let (status, results, then) = if function.takes(block.shape()) {
        carry_out(function, vcpu, &block, memory, services)
    } else {
        failed(Status::Parameter)
    };
    let written = block.results(memory, &results) && block.finish(memory, status);
    (if written { Code::SUCCESS } else { Code::PARAMETER }, then)
}

/// Results behind the status.
type Results = [u32; 7];
type Outcome = (Status, Results, Then);

fn failed(status: Status) -> Outcome {
    (status, [0; 7], Then::Continue)
}

fn done(then: Then) -> Outcome {
    (Status::Success, [0; 7], then)
}

fn checked(right: bool) -> Outcome {
    if right { done(Then::Continue) } else { failed(Status::Parameter) }
}

fn carry_out(
    function: Function,
    vcpu: usize,
    block: &Block,
    memory: &impl Memory,
    services: &mut impl Services,
) -> Outcome {
    let argument = |index| block.argument(index);
    match function {
        Function::DisplayCharacter => {
            services.display(argument(0) as u8);
            done(Then::Continue)
        }
        Function::GetTimeOfDay => (Status::Success, calendar::fields(services.clock()), Then::Continue),
        Function::SetTimeOfDay => set_clock(core::array::from_fn(argument), services),
        Function::PowerOff => done(Then::PowerOff),
        Function::SystemReboot => done(Then::Reboot),
        Function::QueryCpuStoppedState => query(argument(0), services.processors()),
        Function::StartCpu => start(core::array::from_fn(argument), services),
        Function::StopSelf => {
            services.stopping();
            services.processors().stop(vcpu);
            done(Then::Stopped)
        }
        Function::GetSystemParameter => {
            failed(parameter::get(core::array::from_fn(argument), memory, services))
        }
        Function::SetSystemParameter => failed(parameter::set(argument(0))),
        Function::OsTerm => done(Then::Terminated),
        Function::GetXive => match services.route(argument(0)) {
            Some((server, priority)) => {
                (Status::Success, [server, priority.into(), 0, 0, 0, 0, 0], Then::Continue)
            }
            None => failed(Status::Parameter),
        },
        Function::SetXive => match u8::try_from(argument(2)) {
            Ok(priority) => checked(services.set_route(argument(0), argument(1), priority)),
            Err(_) => failed(Status::Parameter),
        },
        Function::IntOff => checked(services.set_masked(argument(0), true)),
        Function::IntOn => checked(services.set_masked(argument(0), false)),
        _ => match pci::call(function, core::array::from_fn(argument), services) {
            Some([first, second, third]) => {
                (Status::Success, [first, second, third, 0, 0, 0, 0], Then::Continue)
            }
            None => failed(Status::Parameter),
        },
    }
}

fn set_clock(fields: calendar::Fields, services: &mut impl Services) -> Outcome {
    match calendar::nanoseconds(fields) {
        Some(nanoseconds) => {
            services.set_clock(nanoseconds);
            done(Then::Continue)
        }
        None => failed(Status::Parameter),
    }
}

fn query(vcpu: u32, processors: &Processors) -> Outcome {
    match processors.state(vcpu as usize) {
        Some(state) => (Status::Success, [state as u32, 0, 0, 0, 0, 0, 0], Then::Continue),
        None => failed(Status::Parameter),
    }
}

/// `start-cpu`: the vCPU, where it starts, and what it finds in R3. It begins big-endian, whatever the caller's interrupts are
/// taken in: no note of a client's file has a field for another order (LoPAPR 7.3.8, B.6.4).
fn start([vcpu, entry, argument]: [u32; 3], services: &mut impl Services) -> Outcome {
    let start = Start { entry: entry.into(), argument: argument.into(), little_endian: false };
    if start.entry >= services.memory_size() || !start.entry.is_multiple_of(4) {
        return failed(Status::Parameter);
    }
    match services.processors().start(vcpu as usize, start) {
        Ok(()) => done(Then::Started(vcpu as usize)),
        Err(Refused::Absent) => failed(Status::Parameter),
        Err(Refused::Running) => failed(Status::Hardware),
    }
}
