// What every page does: buttons that change something through the API, and what they say afterwards.
//
//   <button data-post="/api/v1/jobs/ID/cancel" data-confirm="Cancel this job?" data-then="job-changed">
//
// sends the request; then `data-then` is the event by which htmx refreshes what shows it, or a path to go to.

export function say(text, isError = false) {
  const said = document.getElementById("said");
  said.className = isError ? "error" : "";
  said.textContent = text;
}

// The JSON of an answer; an error's one line is thrown.
export async function ask(path, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("the server does not answer");
  }
  const body = response.status === 204 ? null : await response.json();
  if (!response.ok) throw Object.assign(new Error(body.detail), { problem: body, status: response.status });
  return body;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-post]");
  if (button === null || button.disabled) return;
  if (button.dataset.confirm && !window.confirm(button.dataset.confirm)) return;
  button.disabled = true;
  try {
    await ask(button.dataset.post, { method: "POST", body: button.dataset.body });
    const then = button.dataset.then ?? "changed";
    if (then.startsWith("/")) window.location.assign(then);
    else document.body.dispatchEvent(new CustomEvent(then, { bubbles: true }));
  } catch (error) {
    say(error.message, true);
  } finally {
    button.disabled = false;
  }
});
