// The client under a microscope: its own source, with another main. Compiled with sanitizers.
//
//     harness pendulum              angle, speed and torques on stdin -> states and rewards on stdout
//     harness connect PORT COUNT    COUNT clients one after the other, the exit status of each on stdout

#define main plugrl_client_main
#include "../../examples/plugrl_client.cpp"
#undef main

namespace {

void run_pendulum() {
  double angle = 0, speed = 0, torque = 0;
  std::cin >> angle >> speed;
  PendulumEnv env(0);
  env.start(angle, speed);
  std::cout.precision(17);
  while (std::cin >> torque) {
    const Outcome outcome = env.step({torque});
    for (double value : env.states()[0].values) std::cout << value << ' ';
    std::cout << outcome.reward << ' ' << outcome.terminated << ' ' << outcome.truncated << '\n';
  }
}

Options client_options(const char* port) {
  Options options;
  options.mode = Mode::probe;
  options.host = "127.0.0.1";
  options.port = port;
  options.envs = 3;
  options.steps = 4;
  options.max_reconnects = 0;
  options.waits = {2, 0.2, 0.4, 0.2};
  return options;
}

void run_clients(const char* port, int count) {
  for (int i = 0; i < count; ++i) {
    const Options options = client_options(port);
    std::cout << Client(options, make_slots(options)).run() << std::endl;
  }
}

}  // namespace

int main(int count, char** arguments) {
  const string mode = count > 1 ? arguments[1] : "";
  if (mode == "pendulum") run_pendulum();
  else if (mode == "connect" && count == 4) run_clients(arguments[2], std::atoi(arguments[3]));
  else return plugrl_client_main(count, arguments);
  return 0;
}
