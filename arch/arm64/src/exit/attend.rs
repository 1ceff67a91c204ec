// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the attention word names.

use turnstile_vgic::Outcome;
use turnstile_vm::attention::Reasons;

use super::irq::{deliver_sgis, drain};
use super::service;
use crate::irq::Gic;
use crate::vcpu::frame::Frame;
use crate::vm::{Owned, Vcpu, serve_remote};

/// Looks at everything the attention word names, except what ends the vCPU's run: stop and start.
pub(super) fn attend<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned, reasons: Reasons) {
    if reasons.contains(Reasons::REMOTE) {
        serve_remote::<G>(vcpu, &mut owned.gic, &mut G::interface());
    }
    // One test for all three: a VM without services does not pay for theirs.
    if reasons.intersects(Reasons::INBOX | Reasons::REMOTE | Reasons::SERVICE) {
        if reasons.contains(Reasons::SERVICE) {
            service::look::<G>(frame, vcpu, owned);
        }
        drain::<G>(vcpu, owned);
    }
    if reasons.intersects(Reasons::SGIS) && deliver_sgis::<G>(vcpu, owned, reasons) == Outcome::Slow {
        vcpu.vm.with_gic::<G, _>(|cx| owned.gic.settle(cx));
    }
}
