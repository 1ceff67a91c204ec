// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PAPR's calls about XIVE, answered by KVM's device (LoPAPR 1.1 with the ACR for XIVE exploitation: H_INT_*).

use rustix::io::Result;
use turnstile_machine::pseries::{ESB, FIRST_IPI, INTERRUPT_PAGE, TIMA, TIMA_OS_PAGE, TIMA_USER_PAGE};

use super::abi::{self, XiveQueue};
use super::calls::{self, Answer, PARAMETER, SUCCESS};
use super::kvm::{Device, VcpuFile, Vm};

/// The size of an interrupt controller's page, and of the host's, as a logarithm.
const PAGE_SHIFT: u64 = 16;
/// Slots of the guest's memory: RAM is 0.
const TIMA_SLOT: u32 = 1;
const ESB_SLOT: u32 = 2;
/// A source that no queue has.
const MASKED: u64 = 0xff;
/// The least favoured priority of KVM's: the one above it is its own.
const LAST_PRIORITY: u64 = 6;
/// A queue tells of each event.
const ALWAYS_NOTIFY: u32 = 1;
/// In a source's configuration: KVM's bit of a masked source, and where the guest's number of it begins.
const SOURCE_MASKED: u64 = 1 << 32;
const SOURCE_NUMBER: u32 = 33;
/// Flags of H_INT_SET_SOURCE_CONFIG: the guest names the number that the queue holds.
const SET_NUMBER: u64 = 1 << 1;

/// What a guest set a source to.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    target: u64,
    priority: u64,
    number: u64,
}

/// The interrupt controller of a guest that drives it itself.
#[derive(Debug)]
pub struct Xive {
    device: Device,
    sources: Vec<Source>,
}

impl Xive {
    /// Makes it, with a source for each vCPU to interrupt it by.
    ///
    /// # Errors
    /// KVM's.
    pub fn new(vm: &Vm, vcpus: usize) -> Result<Self> {
        let device = vm.device(abi::DEVICE_XIVE)?;
        let page = 1 << PAGE_SHIFT;
        debug_assert_eq!(INTERRUPT_PAGE, page);
        // The operating system's page and the user's, next to each other.
        let pages = (TIMA_USER_PAGE - TIMA_OS_PAGE + 1) as usize;
        let management = device.pages(abi::XIVE_TIMA_PAGE + TIMA_OS_PAGE, pages)?;
        vm.map(TIMA_SLOT, TIMA.base + TIMA_OS_PAGE * INTERRUPT_PAGE, &management)?;
        vm.map(ESB_SLOT, ESB.base, &device.pages(abi::XIVE_ESB_PAGE, 2 * vcpus)?)?;
        for source in 0..vcpus {
            device.set(abi::XIVE_SOURCE, u64::from(FIRST_IPI) + source as u64, 0_u64)?;
        }
        Ok(Xive { device, sources: vec![Source { priority: MASKED, ..Source::default() }; vcpus] })
    }

    /// Gives a vCPU its ring.
    ///
    /// # Errors
    /// KVM's.
    pub fn connect(&self, vcpu: &VcpuFile, server: usize) -> Result<()> {
        self.device.connect(vcpu, abi::CAP_XIVE, server)
    }

    /// Answers a call; `None` if it is not about XIVE.
    pub fn call(&mut self, number: u64, args: &mut [u64; 9]) -> Option<Answer> {
        let servers = self.sources.len() as u64;
        let [_, first, second, third, ..] = *args;
        Some(match number {
            calls::INT_GET_SOURCE_INFO => self.source_info(args),
            calls::INT_SET_SOURCE_CONFIG => self.set_source(args),
            calls::INT_GET_SOURCE_CONFIG => {
                let Some(source) = self.sources.get(first as usize) else { return Some(PARAMETER) };
                [args[0], args[1], args[2]] = [source.target, source.priority, source.number];
                SUCCESS
            }
            // A queue has no event state buffer of its own here, and a page of the guest's for its events.
            calls::INT_GET_QUEUE_INFO if first < servers && second <= LAST_PRIORITY => {
                [args[0], args[1]] = [ESB.base, PAGE_SHIFT];
                SUCCESS
            }
            calls::INT_SET_QUEUE_CONFIG if first < servers && second <= LAST_PRIORITY => {
                let shift = args[4] as u32;
                let queue = XiveQueue { flags: ALWAYS_NOTIFY, shift, address: third, ..XiveQueue::default() };
                let queue = if shift == 0 { XiveQueue::default() } else { queue };
                answer(self.device.set(abi::XIVE_QUEUE_CONFIG, second | first << 3, queue))
            }
            calls::INT_SYNC => answer(self.device.set(abi::XIVE_SOURCE_SYNC, first, 0_u64)),
            calls::INT_SET_OS_REPORTING_LINE | calls::INT_RESET => SUCCESS,
            calls::INT_GET_QUEUE_INFO | calls::INT_SET_QUEUE_CONFIG => PARAMETER,
            _ => return None,
        })
    }

    /// A pair of pages: the first one triggers the source, the second one manages it.
    fn source_info(&self, args: &mut [u64; 9]) -> Answer {
        let source = args[1];
        if source >= self.sources.len() as u64 {
            return PARAMETER;
        }
        let trigger = ESB.base + source * 2 * INTERRUPT_PAGE;
        [args[0], args[1], args[2], args[3]] = [0, trigger + INTERRUPT_PAGE, trigger, PAGE_SHIFT];
        SUCCESS
    }

    fn set_source(&mut self, args: &[u64; 9]) -> Answer {
        let [flags, index, target, priority, number, ..] = *args;
        let servers = self.sources.len() as u64;
        let Some(source) = self.sources.get_mut(index as usize) else { return PARAMETER };
        let masked = priority == MASKED;
        if !masked && (priority > LAST_PRIORITY || target >= servers) {
            return PARAMETER;
        }
        let number = if flags & SET_NUMBER != 0 { number } else { source.number };
        let config = match masked {
            true => SOURCE_MASKED,
            false => priority | target << 3 | number << SOURCE_NUMBER,
        };
        let result = self.device.set(abi::XIVE_SOURCE_CONFIG, index, config);
        if result.is_ok() {
            *source = Source { target, priority, number };
        }
        answer(result)
    }
}

fn answer(result: Result<()>) -> Answer {
    if result.is_ok() { SUCCESS } else { PARAMETER }
}
