variable "name" {
  description = "What the machines are called: NAME-1, NAME-2 and so on. Their tunnels have the same names."
  type        = string
}

variable "instances" {
  description = "How many machines serve the socket."
  type        = number
  default     = 1
  validation {
    condition     = var.instances >= 0 && var.instances <= 100 && floor(var.instances) == var.instances
    error_message = "There are 0 to 100 machines."
  }
}

variable "socket_id" {
  description = "The socket that the machines serve."
  type        = string
}

variable "port" {
  description = "The port of the service on its machine."
  type        = number
}

variable "api" {
  description = "The address of the API: https://api.example.com."
  type        = string
}

variable "ca" {
  description = "The root certificate of the API in PEM, where it is not one that machines trust anyway."
  type        = string
  default     = null
}

variable "program" {
  description = "Where machines fetch the program, and its SHA-256 (`sha256sum sallyport`). Set one of `program`, `apt` and `installed`."
  type = object({
    url    = string
    sha256 = string
  })
  default = null
}

variable "apt" {
  description = "The apt repository of a release, and its key in OpenPGP, armored."
  type = object({
    url       = string
    key       = string
    suite     = optional(string)
    component = optional(string)
    version   = optional(string)
  })
  default = null
}

variable "installed" {
  description = "Whether the image of the machines has the program."
  type        = bool
  default     = null
}

variable "more" {
  description = "Further parts of the user data, for the service itself: texts that begin with #cloud-config or #!."
  type        = list(string)
  default     = []
}

variable "labels" {
  description = "Labels of the tunnels."
  type        = map(string)
  default     = {}
}

variable "credential_version" {
  description = "A number that changes with the credentials: another version gives each tunnel another one, and its machine follows by `made`."
  type        = number
  default     = 1
}

variable "ephemeral_outputs" {
  description = "Leave it alone. Terraform takes an output as ephemeral only if a value that is ephemeral as a whole went into it."
  type        = bool
  default     = true
  ephemeral   = true
}
