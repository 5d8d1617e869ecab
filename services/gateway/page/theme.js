// Runs before the first paint, so that a chosen theme never flashes.
try {
  const theme = JSON.parse(localStorage.getItem('sluice.theme'));
  if (theme === 'light' || theme === 'dark') {
    document.documentElement.dataset.theme = theme;
  }
} catch {
  // No storage (a private window), or not ours: the system's theme holds.
}
