// Copy buttons; without a script, or where copying is not allowed, the statements are still there to select.
for (const block of document.querySelectorAll(".sql")) {
  const code = block.querySelector("code");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy the statement " + code.textContent.slice(0, 80));
  const say = document.getElementById("said");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      say.textContent = button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      say.textContent = button.textContent = "Selected";
    }
  });
  block.append(button);
}
