//! Work of untrusted templates within bounds of time and memory.
//!
//! The engine counts steps, but one step may double a string. So the work
//! runs on a thread of its own whose allocations are counted. A thread that
//! passes its bounds is parked for good inside the allocator (an allocator
//! must neither unwind nor fail here), and its caller gets an error. What a
//! parked thread holds is lost; the caller counts them and stops in time.

use crate::failure::{Code, Failure, Result};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MAX_BYTES: isize = 256 << 20;
const MAX_TIME: Duration = Duration::from_secs(10);
const STACK_BYTES: usize = 8 << 20;
/// How often a waiting caller looks whether its thread is parked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Set: the thread is to stop, or has, at its next allocation.
struct Stop(AtomicBool);

thread_local! {
    static LEFT: Cell<isize> = const { Cell::new(0) };
    // Null: allocations are not counted.
    static STOP: Cell<*const Stop> = const { Cell::new(std::ptr::null()) };
}

struct Counting;

fn count(bytes: isize) {
    let stop = STOP.get();
    if stop.is_null() {
        return;
    }
    let left = LEFT.get() - bytes;
    LEFT.set(left);
    // SAFETY: STOP points into an Arc that the thread holds while it is set.
    let stop = unsafe { &(*stop).0 };
    if left < 0 {
        stop.store(true, Ordering::Release);
    }
    if stop.load(Ordering::Acquire) {
        loop {
            // SAFETY: waits for a signal; has no other effect.
            unsafe { libc::pause() };
        }
    }
}

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        System.alloc(layout)
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        System.dealloc(block, layout);
        LEFT.set(LEFT.get() + layout.size() as isize);
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        System.realloc(block, layout, size)
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work` within the bounds. Where it passes them: one more in `lost`,
/// and RESOURCE_EXHAUSTED.
pub fn run(
    lost: &AtomicUsize,
    work: impl FnOnce() -> Result<Vec<u8>> + Send + 'static,
) -> Result<Vec<u8>> {
    let stop = Arc::new(Stop(AtomicBool::new(false)));
    let theirs = stop.clone();
    let (send, receive) = sync_channel(1);
    let body = move || {
        LEFT.set(MAX_BYTES);
        STOP.set(Arc::as_ptr(&theirs));
        let outcome = catch_unwind(AssertUnwindSafe(work));
        STOP.set(std::ptr::null());
        let _ = send.send(outcome);
    };
    let thread = std::thread::Builder::new()
        .name("chat-template".to_string())
        .stack_size(STACK_BYTES)
        .spawn(body)
        .map_err(|e| Failure::exhausted(format!("no thread for the chat template: {e}")))?;
    let started = Instant::now();
    loop {
        match receive.recv_timeout(LOOK_EVERY) {
            Ok(outcome) => {
                // It has nothing left to do; the join also tells sanitizers
                // that its memory is ours now.
                let _ = thread.join();
                return outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure {
                    code: Code::Internal,
                    message: "the chat template's thread ended".to_string(),
                })
            }
            Err(RecvTimeoutError::Timeout) if stop.0.load(Ordering::Acquire) => {
                lost.fetch_add(1, Ordering::Relaxed);
                return Err(Failure::exhausted(format!(
                    "the chat template takes more than {MAX_BYTES} bytes of memory"
                )));
            }
            Err(RecvTimeoutError::Timeout) if started.elapsed() > MAX_TIME => {
                stop.0.store(true, Ordering::Release);
                lost.fetch_add(1, Ordering::Relaxed);
                return Err(Failure::exhausted(format!(
                    "the chat template takes longer than {} s",
                    MAX_TIME.as_secs()
                )));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
