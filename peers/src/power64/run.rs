// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU leaves KVM for.

use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use turnstile_machine::pseries::SERIAL;
use turnstile_papr::code::Code;
use turnstile_papr::hcall::Hcall;
use turnstile_papr::mode::{self, Mode};
use turnstile_papr::processors::{Processors, Start};
use turnstile_papr::rtas::pci::Functions;
use turnstile_papr::rtas::{self, Services, Then};
use turnstile_papr::{process_table, terminal};

use super::abi::{Hcall as Request, Mmio, Registers};
use super::kvm::Exit;
use super::partition::{self, MODES, Partition, Vcpu};
use crate::cycles::Cycles;
use crate::doorbell::{Doorbell, read_or_ones};
use crate::shared::{Shared, hear, lock};

/// MSR: 64-bit mode, machine checks, little-endian mode (Power ISA 3.0B, Book III 3.2.1).
const MSR_SF: u64 = 1 << 63;
const MSR_ME: u64 = 1 << 12;
const MSR_LE: u64 = 1;

/// What becomes of a vCPU behind an exit.
enum Next {
    /// It goes on.
    Enter,
    /// It waits until it is started again.
    Stop,
    /// The machine is switched off.
    Off,
}

/// Runs a vCPU until the machine is switched off.
///
/// # Errors
/// Says why KVM or the guest cannot go on.
pub fn enter(vcpu: &mut Vcpu, shared: &Mutex<Shared>, mut cycles: Option<Cycles>) -> Result<()> {
    loop {
        let start = vcpu.partition.wait_for_start(vcpu.index);
        begin(vcpu, start).context("cannot set the registers")?;
        if !run(vcpu, shared, cycles.as_mut())? {
            return Ok(());
        }
    }
}

fn begin(vcpu: &Vcpu, start: Start) -> rustix::io::Result<()> {
    let little = if start.little_endian { MSR_LE } else { 0 };
    let mut registers = Registers { pc: start.entry, msr: MSR_SF | MSR_ME | little, ..Registers::default() };
    registers.gpr[3] = start.argument;
    vcpu.file.set_registers(registers)
}

/// Runs a vCPU from its start to its stop; false if the machine is switched off.
fn run(vcpu: &mut Vcpu, shared: &Mutex<Shared>, mut cycles: Option<&mut Cycles>) -> Result<bool> {
    let partition = &vcpu.partition;
    let doorbell = lock(shared).devices.doorbell.clone();
    let mut modes = None;
    loop {
        let wanted = partition.modes();
        if modes != Some(wanted) {
            vcpu.file.change_lpcr(MODES, wanted).context("cannot set LPCR")?;
            modes = Some(wanted);
        }
        let next = match vcpu.file.run() {
            Ok(Exit::Hcall(request)) => call(vcpu.index, partition, request, shared, cycles.as_deref_mut())?,
            Ok(Exit::Mmio(access)) => device(access, doorbell.as_ref(), shared, cycles.as_deref_mut())?,
            Ok(Exit::Other(reason)) => bail!("KVM cannot go on: exit {reason}"),
            // A signal.
            Err(Errno::INTR | Errno::AGAIN) => Next::Enter,
            Err(error) => bail!("KVM cannot run it: {error}"),
        };
        match next {
            Next::Enter => {}
            Next::Stop => return Ok(true),
            Next::Off => return Ok(false),
        }
    }
}

/// Answers a hypercall that the kernel does not.
fn call(
    vcpu: usize,
    partition: &Partition,
    request: &mut Request,
    shared: &Mutex<Shared>,
    cycles: Option<&mut Cycles>,
) -> Result<Next> {
    let [first, second, third, fourth, fifth, ..] = request.args;
    let arguments = [first, second, third, fourth];
    let code = match Hcall::of_any(request.number) {
        Hcall::PutTermChar => match terminal::put(arguments) {
            Ok((characters, count)) => {
                say(&characters[..count], shared, cycles)?;
                Code::SUCCESS
            }
            Err(code) => code,
        },
        Hcall::GetTermChar => {
            let nothing = terminal::typed(&[]);
            request.args[..nothing.len()].copy_from_slice(&nothing);
            terminal::get(first).err().unwrap_or(Code::SUCCESS)
        }
        Hcall::SetMode => set_mode(partition, arguments),
        Hcall::RegisterProcTbl => match process_table::register(arguments) {
            Ok(table) => match partition.set_process_table(table.entry, table.gtse) {
                Ok(()) => Code::SUCCESS,
                Err(_) => Code::PARAMETER,
            },
            Err(code) => code,
        },
        Hcall::Rtas => {
            let mut firmware = Firmware { partition, said: Vec::new() };
            let (code, then) = rtas::call(vcpu, first, &partition.ram, &mut firmware);
            say(&firmware.said, shared, cycles)?;
            request.result = code.value();
            return follow(partition, then);
        }
        call => match lock(shared).devices.xive.as_mut() {
            Some(xive) if call != Hcall::Unknown => {
                let reply = xive.call(call, &[first, second, third, fourth, fifth]);
                request.args[..reply.values.len()].copy_from_slice(&reply.values);
                reply.code
            }
            _ => Code::FUNCTION,
        },
    };
    request.result = code.value();
    Ok(Next::Enter)
}

/// Does what a function of the firmware ends with.
fn follow(partition: &Partition, then: Then) -> Result<Next> {
    match then {
        Then::Continue => {}
        Then::Started(_) => partition.tell_started(),
        Then::Stopped => return Ok(Next::Stop),
        Then::PowerOff => return Ok(Next::Off),
        Then::Reboot => bail!("the guest restarts its machine"),
        Then::Terminated => bail!("the guest's operating system gives up"),
    }
    Ok(Next::Enter)
}

/// Sets a mode of all vCPUs; what is a vCPU's own the kernel sets itself.
fn set_mode(partition: &Partition, arguments: [u64; 4]) -> Code {
    match mode::set(arguments, false) {
        Ok(Mode::InterruptLocation(location)) => {
            partition.set_modes(partition::LOCATION, partition::interrupt_location(location));
        }
        Ok(Mode::LittleEndianInterrupts(little)) => {
            partition.set_modes(partition::LITTLE_ENDIAN, partition::little_endian_interrupts(little));
        }
        Ok(Mode::Ciabr(_) | Mode::Dawr { .. }) => return Code::FUNCTION,
        Err(code) => return code,
    }
    Code::SUCCESS
}

/// Reads or writes a device's register; where there is none, reads are ones.
fn device(
    access: &mut Mmio,
    doorbell: Option<&Doorbell>,
    shared: &Mutex<Shared>,
    cycles: Option<&mut Cycles>,
) -> Result<Next> {
    let size = (access.length as usize).min(access.data.len());
    let offset = access.address.wrapping_sub(SERIAL.base);
    let serial = offset < SERIAL.size;
    if access.write == 0 {
        let value = match serial {
            true => lock(shared).devices.serial.read(offset, size as u8),
            false => read_or_ones(doorbell, access.address),
        };
        access.data[..size].copy_from_slice(&value.to_le_bytes()[..size]);
    } else if serial {
        let mut value = [0; 8];
        value[..size].copy_from_slice(&access.data[..size]);
        let sent = lock(shared).devices.serial.write(offset, size as u8, u64::from_le_bytes(value));
        say(sent.as_slice(), shared, cycles)?;
    }
    Ok(Next::Enter)
}

/// Hands bytes to the console.
fn say(bytes: &[u8], shared: &Mutex<Shared>, mut cycles: Option<&mut Cycles>) -> Result<()> {
    bytes.iter().try_for_each(|byte| hear(*byte, shared, cycles.as_deref_mut()))
}

/// What the firmware's functions need. There is no source of XICS but those of IPIs, which nobody routes.
struct Firmware<'a> {
    partition: &'a Partition,
    said: Vec<u8>,
}

/// The guest has none.
impl Functions for Firmware<'_> {
    fn read(&mut self, _slot: u64, _offset: u32, _size: u32) -> Option<u32> {
        None
    }

    fn write(&mut self, _slot: u64, _offset: u32, _size: u32, _value: u32) -> Option<()> {
        None
    }

    fn write_bar(&mut self, _slot: u64, _bar: u32, _offset: u32, _value: u32) {}

    fn give(&mut self, _slot: u64, _count: u32) -> u32 {
        0
    }

    fn source(&self, _slot: u64, _number: u32) -> Option<u32> {
        None
    }
}

impl Services for Firmware<'_> {
    fn processors(&self) -> &Processors {
        &self.partition.processors
    }

    /// What others have sent is KVM's.
    fn stopping(&mut self) {}

    fn memory_size(&self) -> u64 {
        self.partition.ram.size()
    }

    fn clock(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
    }

    fn set_clock(&mut self, _nanoseconds: u64) {}

    fn display(&mut self, character: u8) {
        self.said.push(character);
    }

    fn route(&self, _source: u32) -> Option<(u32, u8)> {
        None
    }

    fn set_route(&mut self, _source: u32, _server: u32, _priority: u8) -> bool {
        false
    }

    fn set_masked(&mut self, _source: u32, _masked: bool) -> bool {
        false
    }
}
