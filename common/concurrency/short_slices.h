#ifndef SLUICE_COMMON_CONCURRENCY_SHORT_SLICES_H_
#define SLUICE_COMMON_CONCURRENCY_SHORT_SLICES_H_

namespace sluice {

// Asks the system to run the calling thread in short slices, so that the thread
// also waits for a shorter time. It suits threads that work briefly and often
// beside threads that compute. The thread's share of the CPU stays. Linux 6.12
// and later obey; other systems ignore the request.
void AskForShortSlices();

}  // namespace sluice

#endif  // SLUICE_COMMON_CONCURRENCY_SHORT_SLICES_H_
