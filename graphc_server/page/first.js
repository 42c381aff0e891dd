// Before anything is shown: the colours that were chosen, so that nothing flashes.
try {
  const theme = localStorage.getItem('graphc theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // without storage, the system's colours
}
